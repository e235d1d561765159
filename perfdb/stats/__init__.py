"""The statistics of perfdb: pure arithmetic on samples, no Django.

Names are imported on first use (PEP 562), so that `import perfdb.stats` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perfdb.stats.bisect import Search as Search
    from perfdb.stats.calibration import Calibration as Calibration
    from perfdb.stats.calibration import calibrate as calibrate
    from perfdb.stats.changes import Change as Change
    from perfdb.stats.changes import ChangeTracker as ChangeTracker
    from perfdb.stats.changes import find_changes as find_changes
    from perfdb.stats.comparison import compare as compare
    from perfdb.stats.discovery import Discoveries as Discoveries
    from perfdb.stats.discovery import control_false_discoveries as control_false_discoveries
    from perfdb.stats.geomean import geometric_mean_ratio as geometric_mean_ratio
    from perfdb.stats.launches import InvalidSamplesError as InvalidSamplesError
    from perfdb.stats.noise import Noise as Noise
    from perfdb.stats.paired import compare_paired as compare_paired
    from perfdb.stats.policy import Metric as Metric
    from perfdb.stats.policy import Policy as Policy
    from perfdb.stats.policy import Statistic as Statistic
    from perfdb.stats.rates import Count as Count
    from perfdb.stats.rates import compare_rates as compare_rates
    from perfdb.stats.tails import requests_needed as requests_needed
    from perfdb.stats.tails import tail_bounds as tail_bounds
    from perfdb.stats.tails import tail_claim as tail_claim
    from perfdb.stats.units import Unit as Unit
    from perfdb.stats.units import convert as convert
    from perfdb.stats.units import direction as direction
    from perfdb.stats.units import parse_unit as parse_unit
    from perfdb.stats.verdict import Outcome as Outcome
    from perfdb.stats.verdict import Verdict as Verdict

_HOME = {
    "bisect": ("Search",),
    "calibration": ("Calibration", "calibrate"),
    "changes": ("Change", "ChangeTracker", "find_changes"),
    "comparison": ("compare",),
    "discovery": ("Discoveries", "control_false_discoveries"),
    "geomean": ("geometric_mean_ratio",),
    "launches": ("InvalidSamplesError",),
    "noise": ("Noise",),
    "paired": ("compare_paired",),
    "policy": ("Metric", "Policy", "Statistic"),
    "rates": ("Count", "compare_rates"),
    "tails": ("requests_needed", "tail_bounds", "tail_claim"),
    "units": ("Unit", "convert", "direction", "parse_unit"),
    "verdict": ("Outcome", "Verdict"),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'perfdb.stats' has no attribute {name!r}")
    value = getattr(import_module(f"perfdb.stats.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULE_OF])
