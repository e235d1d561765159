"""The command that repeats a result on one's own machine, quoted so that it can be pasted."""

from __future__ import annotations

import json
import shlex
from typing import Any

from perfdb.models import Alert, Change, Commit, Run


def run_command(run: Run) -> str:
    """Check the commit out and measure exactly this case."""
    return _command(run.case.benchmark.name, run.case.params, run.commit, launches=1)


def alert_command(alert: Alert, change: Change) -> str:
    """Compare both ends of an alert's range on exactly the cell that changed."""
    case = change.series.case
    good, bad = alert.good, alert.culprit or alert.bad
    if good is None or bad is None:
        return _command(case.benchmark.name, case.params, bad or good, launches=5)
    words = ["perfdb", "compare", "--base-commit", good.sha, "--head-commit", bad.sha]
    return shlex.join([*words, *_case_words(case.benchmark.name, case.params), "--launches", "5"])


def _command(benchmark: str, params: dict[str, Any], commit: Commit | None, *, launches: int) -> str:
    words = ["perfdb", "run", *_case_words(benchmark, params), "--launches", str(launches)]
    if commit is not None:
        words += ["--commit", commit.sha]
    return shlex.join(words)


def _case_words(benchmark: str, params: dict[str, Any]) -> list[str]:
    words = ["--benchmark", benchmark]
    for key, value in sorted(params.items()):
        words += ["--param", f"{key}={value if isinstance(value, str) else json.dumps(value)}"]
    return words
