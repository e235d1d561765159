"""How often the demo is right while another process loads one core.

    python -m benchmarks.demo --runs 10 [--quiet]

Each run is `make demo`'s own command with its output kept; beside it one process spins (unless --quiet). A run is
right with exit code 0, wrong where it blamed a commit without cause, undecided else. The requirement: right in at
least 9 of 10, and never a wrong name.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scipy.stats import binomtest

ROOT = Path(__file__).resolve().parents[1]


@contextmanager
def loaded_core(*, quiet: bool) -> Iterator[None]:
    if quiet:
        yield
        return
    hog = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        hog.kill()
        hog.wait()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--quiet", action="store_true", help="without the loaded core")
    args = parser.parse_args()
    right = wrong = 0
    for number in range(1, args.runs + 1):
        started = time.monotonic()
        with loaded_core(quiet=args.quiet):
            done = subprocess.run(
                [sys.executable, "manage.py", "demo", "--exit"],
                cwd=ROOT,
                env=os.environ | {"CI": "true"},
                capture_output=True,
                text=True,
                check=False,
            )
        blamed = [line for line in done.stdout.splitlines() if line.startswith("blamed without cause")]
        named_wrong = [line for line in blamed if "undecided" not in line]
        right += done.returncode == 0
        wrong += bool(named_wrong)
        print(
            f"run {number}: exit {done.returncode} in {time.monotonic() - started:.0f} s {' '.join(blamed)}",
            flush=True,
        )
    interval = binomtest(right, args.runs).proportion_ci()
    print(
        f"right {right} of {args.runs} (95 % {interval.low:.2f} to {interval.high:.2f}), wrong names in {wrong}"
    )
    return 0 if right >= 0.9 * args.runs and not wrong else 1


if __name__ == "__main__":
    sys.exit(main())
