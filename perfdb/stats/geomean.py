"""One number over many benchmarks: the geometric mean of ratios, over the names that both sides have."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GeometricMean:
    """ratio: geometric mean of head / base over `names`, None if there are none.

    only_base, only_head: names of one side alone. without_ratio: common names with a value of zero or below on a
    side. All three are left out of the mean and are to be shown beside it.
    """

    ratio: float | None
    names: tuple[str, ...]
    only_base: tuple[str, ...]
    only_head: tuple[str, ...]
    without_ratio: tuple[str, ...]


def geometric_mean_ratio(base: Mapping[str, float], head: Mapping[str, float]) -> GeometricMean:
    """Geometric mean of head / base. Values of one name are in the same unit on both sides.

    The mean over each side's own names would compare different benchmarks. Raises ValueError naming a value that is
    not finite.
    """
    for side, values in (("base", base), ("head", head)):
        for name, value in values.items():
            if not math.isfinite(value):
                raise ValueError(f"{side} {name!r}: {value} is not finite")
    common = sorted(base.keys() & head.keys())
    usable = [name for name in common if base[name] > 0.0 and head[name] > 0.0]
    logs = [math.log(head[name] / base[name]) for name in usable]
    return GeometricMean(
        ratio=math.exp(math.fsum(logs) / len(logs)) if logs else None,
        names=tuple(usable),
        only_base=tuple(sorted(base.keys() - head.keys())),
        only_head=tuple(sorted(head.keys() - base.keys())),
        without_ratio=tuple(name for name in common if name not in set(usable)),
    )
