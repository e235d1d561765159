"""Verdicts on real launches of one H200: the power-capped clock moves naive medians by up to 28 %."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perfdb.stats import Outcome, compare

DATA = Path(__file__).parents[2].parent / "shared" / "data" / "h200"
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="the H200 launches are not beside this repository")


def read(name: str) -> list[dict[str, Any]]:
    launches: list[dict[str, Any]] = json.loads(gzip.decompress((DATA / f"{name}.json.gz").read_bytes()))
    return launches


def test_equal_code_measured_naively_is_not_called_changed() -> None:
    launches = read("naive")
    rng = np.random.default_rng(1)
    false = draws = 0
    for case in launches[0]["cases"]:
        samples = [launch["cases"][case]["ms"] for launch in launches]
        for _ in range(60):
            order = rng.permutation(len(samples))
            verdict = compare([samples[i] for i in order[:5]], [samples[i] for i in order[5:10]])
            false += verdict.outcome.is_change
            single = compare([samples[order[0]]], [samples[order[1]]])
            assert single.outcome is Outcome.INCONCLUSIVE
            draws += 1
    assert draws == 1200
    assert false <= 12


@pytest.mark.parametrize(("case", "cycles"), [("softmax.8192x4096", False), ("gemm.4096", True)])
def test_three_percent_more_work_measured_steadily_is_found(case: str, cycles: bool) -> None:
    launches = read("harness")

    def side(name: str) -> list[Any]:
        runs = [launch["cases"][name] for launch in launches]
        return [np.array(run["steady"]) * (run["mhz"] if cycles else 1.0) for run in runs]

    base, head = side(case), side(f"{case}@+3")
    rng = np.random.default_rng(2)
    for _ in range(60):
        i, j = rng.permutation(len(base))[:5], rng.permutation(len(head))[:5]
        assert compare([base[k] for k in i], [head[k] for k in j]).outcome is Outcome.REGRESSED


def test_clocks_given_with_the_times_find_it_too() -> None:
    launches = read("harness")
    base, head = ([launch["cases"][f"gemm.4096{more}"] for launch in launches] for more in ("", "@+3"))
    rng = np.random.default_rng(3)
    for _ in range(60):
        i, j = rng.permutation(len(base))[:5], rng.permutation(len(head))[:5]
        verdict = compare(
            [base[k]["steady"] for k in i],
            [head[k]["steady"] for k in j],
            base_mhz=[base[k]["mhz"] for k in i],
            head_mhz=[head[k]["mhz"] for k in j],
        )
        assert verdict.outcome is Outcome.REGRESSED
