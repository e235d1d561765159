"""`perfdb bisect` on real repositories: pass/fail by exit code, merges, skipped commits, the log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perfdb.client.__main__ import main
from tests.services.repo import GitRepo

CHECK = "import sys\nsys.exit({code})\n"


def script(code: int) -> dict[str, str]:
    return {"check.py": CHECK.format(code=code)}


@pytest.fixture
def repo(tmp_path: Path) -> GitRepo:
    repo = GitRepo(tmp_path / "repo")
    repo.commit("good", script(0))
    return repo


def bisect(repo: GitRepo, good: str, bad: str, *more: str) -> int:
    return main(
        [
            "bisect",
            *("--repo", str(repo.path), "--good", good, "--bad", bad, "--command", "{python} check.py"),
            *("--response", "pass_fail", "--log", str(repo.path.parent / "log.jsonl"), *more),
        ]
    )


def test_exit_codes_name_the_commit(repo: GitRepo, capsys: pytest.CaptureFixture[str]) -> None:
    good = repo.git("rev-parse", "HEAD")
    for number in range(6):
        repo.commit(f"fine {number}", {"n.txt": str(number)})
    culprit = repo.commit("breaks", script(1))
    for number in range(6):
        repo.commit(f"later {number}", {"n.txt": f"l{number}"})
    assert bisect(repo, good, "main") == 0
    out = capsys.readouterr().out
    assert "culprit" in out
    assert culprit[:10] in out.split("culprit")[1]
    rows = [json.loads(line) for line in (repo.path.parent / "log.jsonl").read_text().splitlines()]
    before = len(rows)
    assert bisect(repo, good, "main", "--replay") == 0
    assert culprit[:10] in capsys.readouterr().out
    assert len((repo.path.parent / "log.jsonl").read_text().splitlines()) == before


def test_a_commit_inside_a_merge_is_found_there(repo: GitRepo, capsys: pytest.CaptureFixture[str]) -> None:
    good = repo.git("rev-parse", "HEAD")
    repo.git("checkout", "--quiet", "-b", "side")
    for number in range(3):
        repo.commit(f"side {number}", {"s.txt": str(number)})
    culprit = repo.commit("side breaks", script(1))
    repo.commit("side after", {"s.txt": "after"})
    repo.git("checkout", "--quiet", "main")
    for number in range(3):
        repo.commit(f"main {number}", {"m.txt": str(number)})
    repo.git("merge", "--quiet", "--no-ff", "-m", "merge side", "side")
    for number in range(3):
        repo.commit(f"tail {number}", {"m.txt": f"t{number}"})
    assert bisect(repo, good, "main") == 0
    assert f"{culprit[:10]} A. Tester: side breaks" in capsys.readouterr().out


def test_skipped_commits_leave_a_range(repo: GitRepo, capsys: pytest.CaptureFixture[str]) -> None:
    good = repo.git("rev-parse", "HEAD")
    skipped = [repo.commit(f"cannot be tested {n}", script(125) | {"n.txt": str(n)}) for n in range(2)]
    bad = repo.commit("bad", script(1))
    assert bisect(repo, good, bad) == 0
    out = capsys.readouterr().out
    assert "range" in out
    for sha in [*skipped, bad]:
        assert sha[:10] in out.split("range:")[1]


def test_nothing_wrong_is_not_reproduced(repo: GitRepo, capsys: pytest.CaptureFixture[str]) -> None:
    good = repo.git("rev-parse", "HEAD")
    for number in range(4):
        repo.commit(f"fine {number}", {"n.txt": str(number)})
    assert bisect(repo, good, "main") == 3
    assert "not_reproduced" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("good", "bad", "words"),
    [
        ("nothing", "main", "names no commit"),
        ("main", "main", "same commit"),
        ("main", "main~1", "no ancestor"),
    ],
)
def test_ends_that_cannot_be(
    repo: GitRepo, capsys: pytest.CaptureFixture[str], good: str, bad: str, words: str
) -> None:
    repo.commit("second", {"n.txt": "2"})
    bad = repo.git("rev-parse", "HEAD~1") if bad == "main~1" else bad
    assert bisect(repo, good, bad) == 2
    assert words in capsys.readouterr().err
