"""The commands that need no server: check, run, compare; called as a user calls them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.client.command import perfdb

MANIFEST = """
[project]
name = "tiny"

[[benchmark]]
name = "total"
tier = "micro"
entry = "tiny:total"
inputs = "tiny:numbers"
params = { count = [100, 200] }
launches = 2
timeout_s = 30
"""
MODULE = """
def numbers(count, device, seed):
    return (list(range(count)),)


def total(values):
    return sum(values)
"""


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A git repository with one commit, a manifest and a function to measure."""
    root = tmp_path / "tiny"
    root.mkdir()
    (root / "perfdb.toml").write_text(MANIFEST)
    (root / "tiny.py").write_text(MODULE)
    for command in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-qm", "first"]):
        identity = ["-c", "user.name=A Person", "-c", "user.email=a@example.invalid"]
        subprocess.run(["git", *identity, *command], cwd=root, check=True)
    return root


def result(path: Path, name: str, launches: list[list[float]], **extra: Any) -> Path:
    metric = {"name": "time", "unit": "ms", "lower_is_better": True, "launches": launches} | extra
    document = {"format": "perfdb", "benchmarks": [{"name": name, "params": {}, "metrics": [metric]}]}
    path.write_text(json.dumps(document))
    return path


STEADY = [
    [10.0, 10.1, 9.9],
    [10.05, 9.95, 10.0],
    [10.1, 10.0, 10.05],
    [9.95, 10.02, 9.98],
    [10.0, 9.97, 10.06],
]


def scaled(factor: float) -> list[list[float]]:
    return [[factor * x for x in launch] for launch in STEADY]


def test_check_lists_the_cases(repo: Path) -> None:
    done = perfdb("check", cwd=repo)
    assert done.code == 0
    assert "tiny: 1 benchmarks, 2 cases" in done.out
    assert "count=200" in done.out


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("timeout_s = 30", "timeouts = 30", "timeouts"),
        ('name = "total"', 'name = "total', "perfdb.toml:6"),
        ('tier = "micro"', 'tier = "macro"', "macro"),
    ],
)
def test_check_names_line_and_key_of_what_does_not_fit(repo: Path, old: str, new: str, words: str) -> None:
    (repo / "perfdb.toml").write_text(MANIFEST.replace(old, new))
    done = perfdb("check", cwd=repo)
    assert done.code == 2
    assert words in done.err
    assert done.out == ""


def test_a_metric_without_direction_is_refused(repo: Path) -> None:
    (repo / "perfdb.toml").write_text(MANIFEST + '\n[[benchmark.metric]]\nname = "t"\nunit = "s"\n')
    done = perfdb("check", cwd=repo)
    assert done.code == 2
    assert "direction" in done.err


def test_run_measures_and_the_file_is_read_back(repo: Path) -> None:
    done = perfdb("run", "--device", "cpu", "--launches", "1", "--param", "count=100", cwd=repo)
    assert done.code in (0, 2), done.err  # 2: a launch on a disturbed host is invalid, and says so
    document = json.loads((repo / "perfdb-results.json").read_text())
    (benchmark,) = document["benchmarks"]
    assert benchmark["params"] == {"count": 100}
    if done.code == 0:
        assert [len(launch) > 1 for launch in benchmark["metrics"][0]["launches"]] == [True]
    else:
        assert benchmark["reason"] in done.err
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=repo, capture_output=True, text=True, check=True)
    assert document["commit"]["id"] == head.stdout.strip()
    assert perfdb("read", "perfdb-results.json", cwd=repo).code == 0


def test_run_says_what_failed(repo: Path) -> None:
    (repo / "tiny.py").write_text(MODULE.replace("return sum(values)", 'raise RuntimeError("broken here")'))
    done = perfdb("run", "--device", "cpu", "--launches", "1", "--param", "count=100", cwd=repo)
    assert done.code in (2, 3)
    assert "broken here" in done.err
    assert json.loads((repo / "perfdb-results.json").read_text())["benchmarks"][0]["status"] == "error"


def test_run_of_an_entry_that_does_not_import(repo: Path) -> None:
    (repo / "perfdb.toml").write_text(MANIFEST.replace("tiny:total", "nowhere:total"))
    done = perfdb("run", "--device", "cpu", "--launches", "1", cwd=repo)
    assert done.code in (2, 3)
    assert "nowhere" in done.err


def test_run_where_nothing_fits(repo: Path) -> None:
    done = perfdb("run", "--benchmark", "other", cwd=repo)
    assert done.code == 2
    assert "no case fits (benchmarks: total)" in done.err
    assert not (repo / "perfdb-results.json").exists()


def test_run_of_a_commit_that_is_not_there(repo: Path) -> None:
    done = perfdb("run", "--commit", "f" * 40, cwd=repo)
    assert done.code == 2
    assert "ffffffff" in done.err


def test_run_outside_a_repository(tmp_path: Path) -> None:
    done = perfdb("run", cwd=tmp_path)
    assert done.code == 2
    assert "no such file" in done.err


@pytest.mark.parametrize(
    ("factor", "code", "word"), [(1.0, 0, "same"), (1.3, 1, "regressed"), (0.7, 0, "improved")]
)
def test_compare_decides(tmp_path: Path, factor: float, code: int, word: str) -> None:
    result(tmp_path / "a.json", "x", STEADY)
    result(tmp_path / "b.json", "x", scaled(factor))
    done = perfdb("compare", "a.json", "b.json", cwd=tmp_path)
    assert done.code == code, done.out
    assert word in done.out


def test_compare_of_one_launch_says_what_it_would_need(tmp_path: Path) -> None:
    result(tmp_path / "a.json", "x", STEADY[:1])
    result(tmp_path / "b.json", "x", scaled(1.3)[:1])
    done = perfdb("compare", "a.json", "b.json", "--output", "json", cwd=tmp_path)
    assert done.code == 3
    (row,) = json.loads(done.out)
    assert row["verdict"]["outcome"] == "inconclusive"
    assert row["verdict"]["ratio"] == pytest.approx(1.3, rel=0.01)


def test_compare_converts_units_of_one_family_and_refuses_others(tmp_path: Path) -> None:
    result(tmp_path / "a.json", "x", [[990.0]] * 5, unit="us")
    result(tmp_path / "b.json", "x", [[1.01]] * 5, unit="ms")
    (row,) = json.loads(perfdb("compare", "a.json", "b.json", "--output", "json", cwd=tmp_path).out)
    assert row["verdict"]["ratio"] == pytest.approx(1.0202, rel=1e-3)
    result(tmp_path / "c.json", "x", [[1.01]] * 5, unit="MB")
    done = perfdb("compare", "a.json", "c.json", cwd=tmp_path)
    assert done.code == 3
    assert "MB" in done.out


def test_compare_with_nothing_in_common_concludes_nothing(tmp_path: Path) -> None:
    result(tmp_path / "a.json", "x", STEADY)
    result(tmp_path / "b.json", "y", STEADY)
    done = perfdb("compare", "a.json", "b.json", cwd=tmp_path)
    assert done.code == 3
    assert "missing" in done.out
    assert "new" in done.out


@pytest.mark.parametrize(
    ("text", "words"),
    [('{"format": "perfdb", "benchmarks": [', "line 1"), ("", "empty"), ("hello", "no known")],
)
def test_what_is_no_result_file_is_named(tmp_path: Path, text: str, words: str) -> None:
    result(tmp_path / "a.json", "x", STEADY)
    (tmp_path / "b.json").write_text(text)
    done = perfdb("compare", "a.json", "b.json", cwd=tmp_path)
    assert done.code == 2
    assert "b.json" in done.err
    assert words in done.err


def test_help_and_version(tmp_path: Path) -> None:
    assert "COMMAND" in perfdb("--help", cwd=tmp_path).out
    assert perfdb("--version", cwd=tmp_path).code == 0
    assert perfdb("nonsense", cwd=tmp_path).code == 2
