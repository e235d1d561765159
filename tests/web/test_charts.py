"""What charts and figures are made of: nothing a person should see gets lost, and units read well."""

from __future__ import annotations

import base64
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfdb.quantity import percent, quantity, readable
from perfdb.services.decimate import thin
from perfdb.services.series import Point
from perfdb.web.charts import samples_chart, typed
from perfdb.web.format import probability, recipient


def points(values: list[float | None]) -> list[Point]:
    return [Point(i, i, (value,), (None,), frozenset({1}), 0) for i, value in enumerate(values)]


def decoded(array: dict[str, str]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.frombuffer(base64.b64decode(array["bdata"]), dtype="<" + array["dtype"]).astype(float)


@given(st.lists(st.floats(0.1, 10), max_size=400), st.integers(4, 60))
def test_thinning_keeps_ends_extremes_and_order(values: list[float], limit: int) -> None:
    kept = thin(points(list(values)), limit)
    positions = [point.position for point in kept]
    assert positions == sorted(set(positions))
    assert len(kept) <= max(limit, len(values) if len(values) <= limit else 0)
    if values:
        heights = [point.values[0] for point in kept]
        assert positions[0] == 0
        assert positions[-1] == len(values) - 1
        assert max(values) in heights
        assert min(values) in heights


def test_one_spike_among_three_thousand_is_drawn() -> None:
    values: list[float | None] = [1.0] * 3000
    values[1234] = 9.0
    values[2222] = None
    kept = [point.position for point in thin(points(values), 200)]
    assert 1234 in kept
    assert 2222 in kept, "a percentile that fell on a failure ranks above every value"


def test_a_gap_is_a_gap() -> None:
    assert math.isnan(decoded(typed([1.0, None]))[1])


def test_thinned_samples_are_all_counted() -> None:
    chart = samples_chart([0.001 * (1 + i % 10) for i in range(10_001)], "s", "time")
    assert chart["unit"] == "ms"
    assert decoded(chart["counts"]).sum() == 10_001
    assert len(decoded(chart["values"])) == len(decoded(chart["index"])) <= 2000
    assert decoded(chart["values"])[1] == pytest.approx(1 + decoded(chart["index"])[1] % 10)


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (0.00099, "s", "990 us"), (1.01, "ms", "1.010 ms"), (5400, "objects", "5400 objects"), (0.0, "s", "0 s"),
        (2**31, "B", "2 GiB"), (0.0312, "ratio", "3.120 %"), (6.1e14, "FLOP/s", "610 TFLOP/s"), (None, "s", "failed"),
        (3e-12, "s", "0.003000 ns"), (float("inf"), "x", "inf x"), (float("nan"), "x", "nan x"),
    ],
)  # fmt: skip
def test_quantities(value: float | None, unit: str, shown: str) -> None:
    assert quantity(value, unit) == shown


def test_an_axis_has_the_unit_of_its_figures() -> None:
    factor, unit = readable(41e-6, "s")
    assert (unit, 41e-6 * factor) == ("us", pytest.approx(41))
    factor, unit = readable(1500.0, "ms")
    assert (unit, 1500 * factor) == ("s", pytest.approx(1.5))
    assert readable(None, "s") == (1.0, "s")
    assert readable(7.0, "widgets") == (1.0, "widgets")
    assert readable(0.5, "ratio") == (100.0, "%")


def test_changes_and_probabilities() -> None:
    assert [percent(ratio) for ratio in (1.312, 1.0101, 0.5, 25.0, None)] == [
        "+31.2 %",
        "+1.01 %",
        "-50.0 %",
        "x25",
        "",
    ]
    assert [probability(p) for p in (0.0, 1e-9, 0.5, 0.99999, 1.0, None)] == [
        "0.000", "< 0.001", "0.500", "> 0.999", "> 0.999", "",
    ]  # fmt: skip


def test_recipients() -> None:
    assert recipient("https://user:key@hooks.example.org/T0/secret") == "https://hooks.example.org/…"
    assert recipient("ann@example.org") == "ann@example.org"
