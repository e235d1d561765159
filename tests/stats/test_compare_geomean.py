from __future__ import annotations

import math

import pytest

from perfdb.stats import geometric_mean_ratio


def test_only_common_names_count_and_the_others_are_named() -> None:
    base = {"a": 10.0, "b": 20.0, "big": 1e9}
    head = {"a": 10.0, "b": 20.0, "tiny": 1e-9}
    mean = geometric_mean_ratio(base, head)
    assert mean.ratio == pytest.approx(1.0)
    assert (mean.names, mean.only_base, mean.only_head) == (("a", "b"), ("big",), ("tiny",))


def test_it_is_the_geometric_mean() -> None:
    mean = geometric_mean_ratio({"a": 1.0, "b": 1.0}, {"a": 2.0, "b": 8.0})
    assert mean.ratio == pytest.approx(4.0)


def test_values_without_a_ratio_are_left_out_and_named() -> None:
    mean = geometric_mean_ratio({"a": 1.0, "zero": 0.0}, {"a": 2.0, "zero": 5.0})
    assert (mean.ratio, mean.without_ratio) == (2.0, ("zero",))


def test_nothing_in_common_is_no_number() -> None:
    assert geometric_mean_ratio({"a": 1.0}, {"b": 1.0}).ratio is None


def test_impossible_values_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="head 'a': nan is not finite"):
        geometric_mean_ratio({"a": 1.0}, {"a": math.nan})
