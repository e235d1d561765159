"""The table of unit names: families, factors and directions."""

from __future__ import annotations

import pytest

from perfdb import units


def test_a_tool_that_changed_unit_between_runs_gives_a_small_ratio() -> None:
    before, after = units.normalise(990, "us"), units.normalise(1.01, "ms")
    assert before.family == after.family == "time"
    assert after.value / before.value == pytest.approx(1.0202, abs=1e-4)


@pytest.mark.parametrize(
    ("value", "unit", "into", "expected"),
    [
        (1000, "us", "ms", 1.0),
        (1, "s", "ns", 1e9),
        (8, "Mbit/s", "MB/s", 1.0),
        (2, "ops/ms", "ops/s", 2000.0),
        (3, "MiB", "bytes", 3 * 2**20),
        (5, "µs/op", "ns/iter", 5000.0),
    ],
)
def test_conversion_inside_a_family(value: float, unit: str, into: str, expected: float) -> None:
    assert units.convert(value, unit, into) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("unit", "into"), [("s", "ops/s"), ("tokens/s", "requests/s"), ("widgets", "s"), ("B", "B/s")]
)
def test_no_conversion_across_families(unit: str, into: str) -> None:
    with pytest.raises(units.UnitError):
        units.convert(1.0, unit, into)


@pytest.mark.parametrize(
    ("unit", "lower_is_better"),
    [
        ("s/op", True),
        ("ns/op", True),
        ("B/op", True),
        ("allocs/op", True),
        ("ops/s", False),
        ("MB/s", False),
        ("requests/sec", False),
        ("tokens/sec/user", False),
        ("i/s", None),
        ("auxMetricUnits", None),
        ("Megabytes", None),
        ("%", None),
        ("", None),
    ],
)
def test_direction_is_known_or_left_open_but_never_guessed(unit: str, lower_is_better: bool | None) -> None:
    assert units.direction(unit) is lower_is_better


def test_an_unknown_unit_is_a_family_of_its_own() -> None:
    assert units.convert(3.0, "widgets", "widgets") == 3.0
    assert units.lookup("widgets").family != units.lookup("gadgets").family
    assert not units.lookup("widgets").known


def test_short_names_keep_their_case() -> None:
    assert units.lookup("MB").factor == 1e6
    assert units.lookup("Mb").factor == 1e6 / 8
    assert not units.lookup("MS").known
