"""Every cheating or broken kernel of `adversaries` is caught, and the honest one is not."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from . import adversaries
from .launching import case, launch, request

OPTIONS = {"inputs": "adversaries:inputs", "reference": "adversaries:reference", "work": "adversaries:work"}
SHAPE = {"rows": 64, "cols": 1001}
NAMES = [function.__name__ for function in adversaries.CHEATS]
HONEST_SHAPES = [(64, 1001), (1, 1), (3, 17), (128, 4096)]


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    root = tmp_path_factory.mktemp("adversaries").resolve()
    shutil.copy(Path(adversaries.__file__), root / "adversaries.py")
    cheats = [
        case(name, f"adversaries:{name}", params=SHAPE, options=OPTIONS, timeout_s=40) for name in NAMES
    ]
    honest = [
        case(
            f"honest {rows}x{cols}",
            "adversaries:honest",
            params={"rows": rows, "cols": cols},
            options=OPTIONS,
        )
        for rows, cols in HONEST_SHAPES
    ]
    wanted = request(root, *cheats, *honest, budget_s=0.4, environment={"OMP_NUM_THREADS": "1"})
    return launch(wanted, locks=root / "locks")


def test_the_suite_is_large_enough() -> None:
    assert len(NAMES) >= 15


@pytest.mark.parametrize("name", NAMES)
def test_is_caught(outcome: dict[str, Any], name: str) -> None:
    run = outcome["by_name"][name]
    assert run["status"] in ("incorrect", "invalid"), run["reason"]
    assert run["reason"]


@pytest.mark.parametrize(("rows", "cols"), HONEST_SHAPES)
def test_honest_work_passes(outcome: dict[str, Any], rows: int, cols: int) -> None:
    run = outcome["by_name"][f"honest {rows}x{cols}"]
    assert (run["status"], run["reason"]) == ("ok", "")
    assert run["correctness"]["errors"]["element"] <= 1.0
    assert run["correctness"]["compared"] >= 4
