"""Start the runner as a worker does: a child process, JSON in, JSON out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from runners.result import CaseSpec, LaunchRequest, MetricSpec

TIME = MetricSpec("time", "us", lower_is_better=True)
REPOSITORY = Path(__file__).parents[2]


def case(name: str, entry: str | None = None, **fields: Any) -> CaseSpec:
    """A micro case unless `fields` say otherwise."""
    defaults: dict[str, Any] = {"tier": "micro", "params": {}, "metrics": (TIME,), "entry": entry}
    return CaseSpec(benchmark=name, **{**defaults, **fields})


def request(root: Path, *cases: CaseSpec, **fields: Any) -> LaunchRequest:
    defaults: dict[str, Any] = {"device": "cpu", "budget_s": 0.05, "seed": 3, "sentinel": False}
    return LaunchRequest(launch_id="launch", root=str(root), cases=cases, **{**defaults, **fields})


def start(
    text: str, *, locks: Path, variables: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """`python -P -m runners` with `text` on standard input."""
    environment = dict(os.environ) | {
        "PYTHONPATH": str(REPOSITORY),
        "PERFDB_LOCK_DIR": str(locks),
        "PERFDB_LOCK_WAIT_S": "20",
        **(variables or {}),
    }
    return subprocess.run(
        [sys.executable, "-P", "-m", "runners"],
        input=text,
        capture_output=True,
        text=True,
        env=environment,
        cwd="/",
        timeout=150,
        check=False,
    )


def launch(wanted: LaunchRequest, *, locks: Path, variables: dict[str, str] | None = None) -> dict[str, Any]:
    """The parsed result. `by_name` is added: benchmark name -> its run."""
    done = start(wanted.to_json(), locks=locks, variables=variables)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    result["by_name"] = {run["benchmark"]: run for run in result["runs"]}
    return result
