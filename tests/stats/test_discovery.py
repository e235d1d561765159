from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from perfdb.stats import control_false_discoveries


@pytest.mark.parametrize(("dependent", "method"), [(False, "bh"), (True, "by")])
def test_adjusted_p_values_are_those_of_scipy(dependent: bool, method: str) -> None:
    p_values = np.random.default_rng(1).random(40) ** 3
    found = control_false_discoveries(list(p_values), dependent=dependent)
    np.testing.assert_allclose(found.q_values, stats.false_discovery_control(p_values, method=method))
    assert found.accepted == tuple(q is not None and q <= 0.05 for q in found.q_values)


def test_one_small_p_among_a_thousand_is_expected_by_chance() -> None:
    assert control_false_discoveries([0.004]).accepted == (True,)
    assert control_false_discoveries([0.004], tests=1000).accepted == (False,)
    assert control_false_discoveries([0.004] + [0.6] * 999).accepted[0] is False


def test_the_share_of_false_discoveries_is_kept() -> None:
    rng = np.random.default_rng(2)
    shares = []
    for _ in range(300):
        z = rng.normal(0, 1, 200) + np.where(np.arange(200) < 20, 4.0, 0.0)
        accepted = np.array(control_false_discoveries(list(2 * stats.norm.sf(np.abs(z))), rate=0.1).accepted)
        shares.append(accepted[20:].sum() / max(1, accepted.sum()))
    assert np.mean(shares) <= 0.1
    assert np.mean(shares) > 0.05


def test_an_exact_change_needs_no_p_value() -> None:
    found = control_false_discoveries([None, 0.9, 0.001])
    assert found.accepted == (True, False, True)
    assert found.q_values[0] is None
    assert found.tests == 2


def test_nothing_is_nothing() -> None:
    found = control_false_discoveries([])
    assert (found.accepted, found.q_values, found.tests) == ((), (), 0)


def test_bad_input_is_refused() -> None:
    with pytest.raises(ValueError, match="p-value 2 is nan"):
        control_false_discoveries([0.1, math.nan])
    with pytest.raises(ValueError, match=r"p-value 1 is 1\.5"):
        control_false_discoveries([1.5])
    with pytest.raises(ValueError, match="rate lies between"):
        control_false_discoveries([0.5], rate=5)
    with pytest.raises(ValueError, match="more than the 1 tests"):
        control_false_discoveries([0.1, 0.2], tests=1)
