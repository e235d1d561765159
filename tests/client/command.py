"""Calling `perfdb` as a user does: a process of its own, with an environment that holds nothing of ours."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Called:
    """What a process answered."""

    code: int
    out: str
    err: str


def perfdb(
    *arguments: str | Path, cwd: Path, timeout_s: float = 100.0, env: Mapping[str, str] | None = None
) -> Called:
    """Run `perfdb ARGUMENTS` in `cwd`. PERFDB_ variables of the caller are not passed on; the spool lies in `cwd`."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PERFDB_")}
    clean |= {"PERFDB_SPOOL": str(cwd / "spool"), "NO_COLOR": "1"}
    done = subprocess.run(
        [sys.executable, "-P", "-m", "perfdb.client", *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        env=clean | dict(env or {}),
    )
    assert "Traceback" not in done.stderr, done.stderr
    return Called(done.returncode, done.stdout, done.stderr)
