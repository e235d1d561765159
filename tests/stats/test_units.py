from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfdb.stats import convert, direction, parse_unit
from perfdb.stats.units import Family, family

TIMES = ["ps", "ns", "us", "µs", "ms", "s", "min", "h", "seconds", "milliseconds", "ns/op", "s/op", "ms/iter"]


@pytest.mark.parametrize(
    ("value", "source", "target", "expected"),
    [
        (990, "us", "ms", 0.99),
        (1.01, "ms", "us", 1010),
        (1, "s", "ns", 1e9),
        (24.338, "seconds", "ms", 24338),
        (2, "GiB", "MiB", 2048),
        (1, "GB", "MB", 1000),
        (3, "TFLOP/s", "GFLOP/s", 3000),
        (5, "%", "fraction", 0.05),
        (60, "req/min", "requests/s", 1),
        (1, "GB/s", "MB/s", 1000),
        (10, "ns/op", "us", 0.01),
        (7, "furlongs", "furlongs", 7),
    ],
)
def test_values_are_converted_inside_a_family(
    value: float, source: str, target: str, expected: float
) -> None:
    assert convert(value, source, target) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("ms", "MB"),
        ("s/op", "ops/s"),
        ("tokens/s", "requests/s"),
        ("objects", "steps"),
        ("B", "B/s"),
        ("ms/token", "ms/request"),
        ("cycles", "s"),
    ],
)
def test_families_are_never_mixed(source: str, target: str) -> None:
    with pytest.raises(ValueError, match="different families"):
        convert(1.0, source, target)


def test_an_unknown_unit_is_named_and_never_converted() -> None:
    with pytest.raises(ValueError, match="unit 'furlongs' is unknown"):
        convert(1.0, "furlongs", "s")
    with pytest.raises(ValueError, match="unit 'i/s' is unknown"):
        convert(1.0, "ops/s", "i/s")


@pytest.mark.parametrize(
    "unit", [*TIMES, "B", "MiB", "B/op", "allocs/op", "registers", "cycles", "J", "spills"]
)
def test_lower_is_better(unit: str) -> None:
    assert direction(unit) is True


@pytest.mark.parametrize(
    "unit",
    ["ops/s", "MB/s", "tokens/s", "tok/s", "req/s", "qps", "TFLOPS", "GFLOP/s", "samples/s", "images/sec"],
)
def test_higher_is_better(unit: str) -> None:
    assert direction(unit) is False


@pytest.mark.parametrize(
    "unit", ["i/s", "", "furlongs", "%", "objects", "count", "MHz", "W", "°C", "TFLOPs", "x/y"]
)
def test_no_direction_is_guessed(unit: str) -> None:
    assert direction(unit) is None


@pytest.mark.parametrize("unit", TIMES)
def test_times_per_operation_are_times(unit: str) -> None:
    assert family(unit) is Family.TIME


def test_case_tells_bits_from_bytes_and_milli_from_mega() -> None:
    assert parse_unit("Mb") is None
    assert parse_unit("mW") != parse_unit("MW")
    assert family("MB") is Family.BYTES


@given(value=st.floats(1e-6, 1e6), source=st.sampled_from(TIMES[:8]), target=st.sampled_from(TIMES[:8]))
def test_there_and_back(value: float, source: str, target: str) -> None:
    assert convert(convert(value, source, target), target, source) == pytest.approx(value)
