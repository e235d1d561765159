"""The demo's repository: the same commits every time, and each planted thing is where the script says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from perfdb.demo.history import STEPS, Planted, write
from perfdb.manifest import parse
from perfdb.vcs import Repository


def test_history_is_reproducible_and_every_commit_has_a_manifest(tmp_path: Path) -> None:
    one, two = write(tmp_path / "one"), write(tmp_path / "two")
    assert one.shas == two.shas
    assert len(one.shas) == len(STEPS) + 1 == 24
    repository = Repository(one.path)
    for sha in one.shas:
        text = repository.file_at(sha, "perfdb.toml")
        assert text is not None
        assert len(parse(text).cases()) == 5


def test_planted_commits_do_what_they_say(tmp_path: Path) -> None:
    made = write(tmp_path / "repo")
    repository = Repository(made.path)
    index = made.shas.index(made.planted[Planted.NO_BUILD])
    for sha, builds in ((made.shas[index], False), (made.shas[index + 1], True)):
        with repository.worktree(sha, tmp_path / "tree") as root:
            done = subprocess.run([sys.executable, "build.py"], cwd=root, capture_output=True, check=False)
        assert (done.returncode == 0) is builds
    slow = made.planted[Planted.SLOWER]
    parent = made.shas[made.shas.index(slow) - 1]
    assert repository.changed_paths(parent, slow) == ["tensorlab/ops.py"]
    memory = made.planted[Planted.OUT_OF_MEMORY]
    attention = repository.file_at(memory, "tinylm/attention.py")
    assert attention is not None
    assert "masked_fill" in attention
