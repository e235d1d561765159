"""Where the tests' result files are, and short ways to look at a reading."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfdb import units
from perfdb.formats import BenchmarkReading, MetricReading, Reading, read

HERE = Path(__file__).parent
INPUTS = HERE / "inputs"
CORPUS = HERE / "corpus"
SHARED = Path(__file__).parents[2].parent / "shared" / "cases" / "results"


def shared(name: str) -> Path:
    """A handed file; the test is skipped where the folder is not there."""
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"../shared/cases/results/{name} is not there")
    return path


def handed(name: str) -> Reading:
    return read(shared(name))


def own(name: str) -> Reading:
    return read(INPUTS / name)


def benchmark(reading: Reading, name: str, **params: object) -> BenchmarkReading:
    """The one benchmark of this name, at these parameters where they are given."""
    found = [
        each
        for each in reading.benchmarks
        if each.name == name and all(each.params.get(key) == value for key, value in params.items())
    ]
    assert len(found) == 1, f"{len(found)} of {name}: {[each.identity for each in reading.benchmarks]}"
    return found[0]


def metric(found: BenchmarkReading, name: str) -> MetricReading:
    return next(each for each in found.metrics if each.name == name)


def samples(found: MetricReading) -> list[float]:
    return [sample for launch in found.launches for sample in launch]


def in_base(found: MetricReading) -> float:
    """The headline in the family's base unit (seconds, bytes, ...)."""
    assert found.value is not None
    return units.normalise(found.value, found.unit).value


def identities(reading: Reading) -> set[str]:
    return {each.identity for each in reading.benchmarks}
