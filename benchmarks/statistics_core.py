"""Every number of the statistics core beside its bound and the peers: change points, then verdicts.

    python -m benchmarks.statistics_core --seeds 5 --first-seed 7001

The two halves are `benchmarks.detection` and `benchmarks.verdicts`; either may be run alone. Exit status: how many
of the two missed a bound. Errors are not caught: a figure that could not be measured ends the run.
"""

from __future__ import annotations

import argparse
import subprocess
import sys


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5, help="fresh seeds of the synthetic histories")
    parser.add_argument("--first-seed", type=int, default=7001)
    parser.add_argument("--seed", type=int, default=1, help="of the verdicts' draws")
    args = parser.parse_args()
    halves = (
        ["benchmarks.detection", "--seeds", str(args.seeds), "--first-seed", str(args.first_seed)],
        ["benchmarks.verdicts", "--seed", str(args.seed)],
    )
    missed = 0
    for half in halves:
        done = subprocess.run([sys.executable, "-m", *half], check=False)
        if done.returncode not in (0, 1):
            return done.returncode
        missed += done.returncode
    return missed


if __name__ == "__main__":
    sys.exit(main())
