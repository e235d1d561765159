"""Two real repositories with merges and broken commits, measured on this machine by `perfdb bisect`."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.bisection_repositories import plant, search


@pytest.mark.parametrize("seed", [2, 3])
def test_the_planted_commit_is_found(tmp_path: Path, seed: int) -> None:
    planted = plant(tmp_path / "repository", seed=seed, step=2.5, loops=20_000)
    assert planted.broken
    assert search(planted, tmp_path, seed=seed, step=2.5).outcome == "right"
