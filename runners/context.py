"""What a tier gets beside its CaseSpec: where the project is, on what to run it, and until when."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path


def _print_line(line: str) -> None:
    print(line, flush=True)


@dataclass(frozen=True)
class Context:
    """One case's surroundings. Every tier is `run_case(case: CaseSpec, context: Context) -> RunResult`.

    root: the checked-out commit; first on the import path and the working directory.
    python: interpreter for the project's code (a server or command started by the tier).
    device: "cpu" or "cuda" (index 0 of what CUDA_VISIBLE_DEVICES leaves visible).
    deadline: `time.monotonic()` by which the case must have ended; it is killed soon after.
    budget_s: time for warm-up and timing, correctness apart.
    environment: the scrubbed variables for processes that the case starts.
    cpus: cores that those processes may use (None: no pinning).
    log: writes one line to the case's log.
    """

    root: Path
    python: str
    device: str
    seed: int
    deadline: float
    budget_s: float = 2.0
    environment: Mapping[str, str] = field(default_factory=dict)
    cpus: tuple[int, ...] | None = None
    log: Callable[[str], None] = _print_line

    def remaining_s(self) -> float:
        """Seconds left to the deadline, never negative."""
        return max(0.0, self.deadline - time.monotonic())
