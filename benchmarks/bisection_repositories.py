"""`perfdb bisect` on real repositories: merges, commits that do not build, one culprit inside a merged branch.

    nice -n 5 python -m benchmarks.bisection_repositories --repos 20 [--step 1.3] [--seed 0] [--json FILE]

Each repository has 60 commits, its branches and merges drawn from the seed; about every tenth commit does not build.
One commit of one side makes a loop `step` times longer. Everything else is as a user has it: clean checkouts, a
build, one process a launch, which reports the best of 15 loops by the wall clock, so that a busy machine is bearable.
Right: the culprit is named, or a range that holds it and else only commits that do not build. Undecided: no commit is
named. Wrong: anything else.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import subprocess
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from perfdb.client.__main__ import main as perfdb

COMMITS = 60
BROKEN_SHARE = 0.1
LOOPS = 100_000
_WORK = """\
import json, time

def once():
    started, total = time.perf_counter(), 0
    for i in range({loops}):
        total += i
    return time.perf_counter() - started

best = min(once() for _ in range(15))
print(json.dumps([{{"name": "loop", "unit": "s", "value": best}}]))
"""
_BUILD = "import pathlib, sys\nsys.exit(pathlib.Path('broken').exists())\n"
_NAMING = ("culprit", "range")


@dataclass(frozen=True)
class Planted:
    """A repository with its truth; SHAs in full."""

    path: Path
    good: str
    bad: str
    culprit: str
    broken: frozenset[str]


@dataclass(frozen=True)
class Line:
    """How one search ended. `outcome` is right, undecided or wrong."""

    seed: int
    outcome: str
    kind: str
    launches: int
    seconds: float


class _Writer:
    """Commits a line of work; every commit has the same author and a date of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.count = 0
        path.mkdir(parents=True)
        self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *arguments: str) -> str:
        stamp = f"{1_700_000_000 + 60 * self.count} +0000"
        who = {f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in (
            ("NAME", "Planter"), ("EMAIL", "planter@example.invalid"), ("DATE", stamp))}  # fmt: skip
        done = subprocess.run(
            ["git", *arguments],
            cwd=self.path,
            env=os.environ | who | {"GIT_CONFIG_GLOBAL": os.devnull},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    def commit(self, name: str, *, broken: bool, loops: int | None = None) -> str:
        """One commit with a file of its own, so that merges never conflict."""
        self.count += 1
        (self.path / f"{name}.txt").write_text(f"{self.count}\n")
        flag = self.path / "broken"
        flag.write_text("") if broken else flag.unlink(missing_ok=True)
        if loops is not None:
            (self.path / "work.py").write_text(_WORK.format(loops=loops))
        self.git("add", "--all")
        self.git("commit", "--quiet", "-m", f"{name} {self.count}")
        return self.git("rev-parse", "HEAD")

    def merge(self, name: str) -> str:
        self.count += 1
        self.git("checkout", "--quiet", "main")
        self.git("merge", "--quiet", "--no-ff", "-m", f"merge {name}", name)
        return self.git("rev-parse", "HEAD")


def plant(path: Path, *, seed: int, step: float, loops: int = LOOPS) -> Planted:
    """Write a repository. Sides of 3 to 6 commits, each merged after up to two commits of the main line."""
    rng = np.random.default_rng(seed)
    writer = _Writer(path)
    (path / "build.py").write_text(_BUILD)
    good = writer.commit("main", broken=False, loops=loops)
    broken: set[str] = set()
    sides = [int(n) for n in rng.integers(3, 7, 8)]
    guilty = int(rng.integers(1, 5))
    at = int(rng.integers(0, sides[guilty]))
    culprit = ""
    for number, length in enumerate(sides):
        name = f"side{number}"
        writer.git("checkout", "--quiet", "-b", name, "main")
        for place in range(length):
            slow = number == guilty and place == at
            # Neither the culprit nor a commit that is merged is broken: its merge would inherit that.
            fails = not slow and place < length - 1 and bool(rng.random() < 1.6 * BROKEN_SHARE)
            sha = writer.commit(name, broken=fails, loops=round(loops * step) if slow else None)
            broken |= {sha} if fails else set()
            culprit = sha if slow else culprit
        writer.git("checkout", "--quiet", "main")
        for _ in range(int(rng.integers(0, 3))):
            writer.commit("main", broken=False)
        writer.merge(name)
    while writer.count < COMMITS:
        fails = writer.count < COMMITS - 1 and bool(rng.random() < BROKEN_SHARE)
        sha = writer.commit("main", broken=fails)
        broken |= {sha} if fails else set()
    return Planted(path, good, writer.git("rev-parse", "HEAD"), culprit, frozenset(broken))


def search(planted: Planted, folder: Path, *, seed: int, step: float) -> Line:
    """Run `perfdb bisect` as a user does and read what it says."""
    out = io.StringIO()
    started = time.monotonic()
    with contextlib.redirect_stdout(out):
        perfdb(
            [
                *("bisect", "--repo", str(planted.path), "--good", planted.good, "--bad", planted.bad),
                *("--build", "{python} build.py", "--command", "{python} -I -S work.py"),
                *("--output", "github-action-benchmark"),
                *("--ratio", str(step), "--log", str(folder / f"{seed}.jsonl")),
            ]
        )
    seconds = time.monotonic() - started
    answers = re.findall(
        r"^(\w+): .*\((\d+) launches, cost \d+\)\n((?:  [0-9a-f]{10} .*\n)*)", out.getvalue(), re.M
    )
    kind, _, listed = answers[-1]
    named = re.findall(r"^  ([0-9a-f]{10}) ", listed, re.M)
    launches = sum(int(count) for _, count, _ in answers)
    return Line(seed, judge(planted, kind, named), kind, launches, seconds)


def judge(planted: Planted, kind: str, named: list[str]) -> str:
    """A range is right where it holds the culprit and nothing besides but what does not build."""
    others = {sha for sha in named if not planted.culprit.startswith(sha)}
    if kind not in _NAMING:
        return "undecided"
    hidden = all(any(sha.startswith(other) for sha in planted.broken) for other in others)
    return (
        "right" if len(others) < len(named) and (kind == "culprit" or hidden) and len(named) > 0 else "wrong"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repos", type=int, default=20)
    parser.add_argument("--step", type=float, default=1.3, help="bad over good (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    lines = []
    for seed in range(args.seed, args.seed + args.repos):
        with tempfile.TemporaryDirectory(prefix="perfdb-repositories-") as folder:
            planted = plant(Path(folder) / "repository", seed=seed, step=args.step)
            line = search(planted, Path(folder), seed=seed, step=args.step)
        print(
            f"seed {seed}: {line.outcome} ({line.kind}), {line.launches} launches, {line.seconds:.0f} s",
            flush=True,
        )
        lines.append(line)
    counts = {name: sum(line.outcome == name for line in lines) for name in ("right", "undecided", "wrong")}
    print(f"{len(lines)} repositories: " + ", ".join(f"{count} {name}" for name, count in counts.items()))
    if args.json:
        args.json.write_text(
            json.dumps({"step": args.step, "lines": [asdict(line) for line in lines]}, indent=1)
        )


if __name__ == "__main__":
    main()
