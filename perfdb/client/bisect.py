"""`perfdb bisect`: find the first bad commit here, without a server, under noise.

The search is `perfdb.stats.bisect.Search`; this module only checks out, builds, runs and writes down. Every
observation goes into a log (JSON lines) before the next step, so that a search that was broken off goes on where it
stood, and a finished one can be replayed without measuring.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfdb.client.settings import UsageError

if TYPE_CHECKING:
    from perfdb.stats.bisect import Answer, Search
    from perfdb.vcs import CommitInfo, Repository

SKIP_CODE = 125
"""A command that ends so says "this commit cannot be tested", as `git bisect run` has it."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "bisect",
        help="find the first bad commit here, under noise",
        description=(
            "Measures commits between a good and a bad one until one is named with the confidence asked for. "
            "Exit codes: 0 a commit or range is named, 2 error, 3 not reproduced or inconclusive. "
            f"A command that ends with {SKIP_CODE} skips the commit."
        ),
    )
    parser.add_argument("--repo", default=".", help="the repository (default: here)")
    parser.add_argument("--good", required=True, help="a commit before the change")
    parser.add_argument("--bad", required=True, help="a commit after it")
    parser.add_argument(
        "--command", required=True, help="what to measure; split like a shell, no shell runs it"
    )
    parser.add_argument("--build", help="run first in each clean checkout; its failure is no verdict")
    parser.add_argument("--output", default="wall", help="wall (time of the command) or a result format")
    parser.add_argument("--metric", help="which metric of the format (default: the only one)")
    parser.add_argument("--benchmark", help="which benchmark of the format (default: the only one)")
    parser.add_argument("--response", choices=("level", "rate", "pass_fail"), default="level")
    parser.add_argument(
        "--ratio", type=float, default=1.1, help="bad over good as reported (default: %(default)s)"
    )
    parser.add_argument("--confidence", type=float, default=0.95)
    parser.add_argument("--max-cost", type=float, help="launches to spend, a build counted as 3")
    parser.add_argument(
        "--timeout", type=float, default=600.0, help="seconds a launch; longer counts as slow"
    )
    parser.add_argument("--log", default="perfdb-bisect.jsonl", help="log (default: %(default)s)")
    parser.add_argument("--replay", action="store_true", help="show what the log says; measure nothing")
    parser.set_defaults(run=run)


@dataclass(slots=True)
class Outcome:
    """Launch values of one commit, or None with the reason why it cannot be tested."""

    values: list[float] | None
    reason: str = ""


class Log:
    """The observations so far. The first line says what is searched; another search is refused."""

    def __init__(self, path: Path, question: dict[str, Any]) -> None:
        self.path = path
        self.past: list[dict[str, Any]] = []
        if path.exists():
            rows = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
            if rows and rows[0].get("question") != question:
                raise UsageError(f"{path} is the log of another search; name another with --log")
            self.past = rows[1:]
        else:
            self._write({"question": question})

    def add(self, row: dict[str, Any]) -> None:
        self._write(row)

    def _write(self, row: dict[str, Any]) -> None:
        with self.path.open("a") as stream:
            stream.write(json.dumps(row, allow_nan=False) + "\n")
            stream.flush()
            os.fsync(stream.fileno())


@dataclass(slots=True)
class Measurer:
    """Builds each commit once in a clean checkout of its own and runs the command there."""

    repository: Repository
    folder: Path
    args: argparse.Namespace
    built: dict[str, Outcome | Path] = field(default_factory=dict)

    def measure(self, sha: str, launches: int) -> Outcome:
        tree = self._tree(sha)
        if isinstance(tree, Outcome):
            return tree
        values = []
        for _ in range(launches):
            one = self._launch(tree)
            if one.values is None:
                return one
            values += one.values
        return Outcome(values)

    def _tree(self, sha: str) -> Path | Outcome:
        if sha not in self.built:
            at = self.folder / sha
            self.repository.add_worktree(sha, at)
            self.built[sha] = at
            if self.args.build:
                code, out = _execute(shlex.split(self.args.build), at, self.args.timeout)
                if code != 0:
                    self.built[sha] = Outcome(None, f"the build ended with {code}: {_last(out)}")
        return self.built[sha]

    def _launch(self, tree: Path) -> Outcome:
        started = time.perf_counter()
        code, out = _execute(shlex.split(self.args.command), tree, self.args.timeout)
        spent = time.perf_counter() - started
        if code is None:
            # Slower than anything measured: it counts as slow, not as broken.
            return Outcome([1.0 if self.args.response != "level" else self.args.timeout])
        if code == SKIP_CODE:
            return Outcome(None, "the command asked to skip this commit")
        if self.args.response == "pass_fail":
            return Outcome([0.0 if code == 0 else 1.0])
        if code != 0:
            return Outcome(None, f"the command ended with {code}: {_last(out)}")
        return Outcome([spent]) if self.args.output == "wall" else self._read(out)

    def _read(self, out: bytes) -> Outcome:
        from statistics import median

        from perfdb.formats import FormatError, read

        try:
            reading = read(out, self.args.output)
        except FormatError as error:
            return Outcome(None, str(error))
        found = [
            metric
            for benchmark in reading.benchmarks
            if self.args.benchmark in (None, benchmark.name)
            for metric in benchmark.metrics
            if self.args.metric in (None, metric.name)
        ]
        if len(found) != 1:
            raise UsageError(
                f"--benchmark and --metric must name one metric; the output has {len(found)} that fit"
            )
        values = [median(f.samples) if f.samples else f.value for f in found[0].per_launch()]
        return Outcome([float(value) for value in values if value is not None])


def run(args: argparse.Namespace) -> int:
    try:
        from perfdb.stats.bisect import Search
    except ImportError:
        raise UsageError("bisect needs the statistics: pip install 'perfdb[stats]'") from None
    from perfdb.vcs import GitError, Repository

    repository = Repository(Path(args.repo).resolve())
    try:
        line = [repository.commit(args.good), *repository.between(args.good, args.bad)]
        if not repository.is_ancestor(args.good, args.bad):
            raise UsageError(
                f"{args.good} is no ancestor of {args.bad}; the search needs a good commit before a bad one"
            )
        if len(line) < 2:
            raise UsageError("good and bad are the same commit")
        with tempfile.TemporaryDirectory(prefix="perfdb-bisect-") as folder:
            measurer = Measurer(repository, Path(folder), args)
            answer = _search(args, measurer, line, Search)
            _tell(answer, line, repository)
            side = _merged_side(answer, line, repository)
            if side:
                print(f"the named commit is a merge of {len(side) - 1} commits: searching its side")
                answer = _search(args, measurer, side, Search)
                _tell(answer, side, repository)
    except (GitError, ValueError) as error:
        raise UsageError(str(error)) from None
    return 0 if answer.kind in ("culprit", "range", "several") else 3


def _search(
    args: argparse.Namespace, measurer: Measurer, line: Sequence[CommitInfo], search_type: type[Search]
) -> Answer:
    shas = [info.sha for info in line]
    question = {
        key: getattr(args, key)
        for key in (
            "command",
            "build",
            "output",
            "metric",
            "benchmark",
            "response",
            "ratio",
            "confidence",
            "max_cost",
        )
    } | {"good": shas[0], "bad": shas[-1]}
    log = Log(_log_path(args.log, shas), question)
    search = search_type(
        len(shas) - 1,
        alert_ratio=args.ratio,
        response=args.response,
        confidence=args.confidence,
        max_cost=args.max_cost,
    )
    for row in log.past:
        search.observe(row["index"], row["values"])
        _progress(search, shas, row["index"], row["values"], row["reason"])
    while not args.replay and (probes := search.next()):
        for probe in probes:
            outcome = measurer.measure(shas[probe.commit], probe.launches)
            row = {
                "index": probe.commit,
                "sha": shas[probe.commit],
                "launches": probe.launches,
                "values": outcome.values,
                "reason": outcome.reason,
            }
            log.add(row)
            search.observe(probe.commit, outcome.values)
            _progress(search, shas, probe.commit, outcome.values, outcome.reason)
    return search.answer


def _log_path(name: str, shas: Sequence[str]) -> Path:
    """The search of a merge's side has a log of its own beside the first one."""
    path = Path(name)
    if not path.exists():
        return path
    first = json.loads(path.read_text().splitlines()[0] or "{}").get("question", {})
    same = first.get("good") == shas[0] and first.get("bad") == shas[-1]
    return path if same else path.with_suffix(f".{shas[-1][:10]}{path.suffix}")


def _merged_side(answer: Answer, line: Sequence[CommitInfo], repository: Repository) -> list[CommitInfo]:
    """Merge base and commits of the side, when one merge is named; else nothing."""
    if answer.kind != "culprit" or len(answer.commits) != 1:
        return []
    side = repository.merged_side(line[answer.commits[0]].sha)
    return [repository.commit(side[0].parents[0]), *side] if side and side[0].parents else []


def _progress(
    search: Search, shas: Sequence[str], index: int, values: Sequence[float] | None, reason: str
) -> None:
    """One line per probe with the commit that leads."""
    got = reason or "not testable" if values is None else ", ".join(f"{value:.6g}" for value in values)
    lead = ""
    posterior = search.posterior()
    if posterior is not None and posterior.commits:
        best = max(range(len(posterior.commits)), key=lambda i: posterior.commits[i])
        shares = f"{100 * posterior.commits[best]:.0f} %, no change {100 * posterior.none:.0f} %"
        lead = f"   leads: {shas[best][:10]} {shares}"
    print(f"{shas[index][:10]}  {got}{lead}", flush=True)


def _tell(answer: Answer, line: Sequence[CommitInfo], repository: Repository) -> None:
    print(f"\n{answer.kind}: {answer.reason} ({answer.launches} launches, cost {answer.cost:.0f})")
    for index in answer.commits[:50]:
        info = line[index]
        print(f"  {info.sha[:10]} {info.author}: {info.subject}")
        if index and answer.kind == "culprit":
            for path, (old, new) in repository.submodule_rolls(line[index - 1].sha, info.sha).items():
                print(f"    rolls {path} from {old[:10]} to {new[:10]}: the change may be in there")


def _execute(argv: Sequence[str], root: Path, timeout_s: float) -> tuple[int | None, bytes]:
    """Exit code (None: timed out) and standard output; nothing that it started outlives it."""
    command = [sys.executable if part == "{python}" else part for part in argv]
    try:
        process = subprocess.Popen(
            command,
            cwd=root,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        raise UsageError(f"cannot start {command[0]!r}: {error.strerror}") from None
    try:
        out, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        return None, b""
    finally:
        _end(process)
    return process.returncode, out


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()


def _last(out: bytes) -> str:
    lines = out.decode("utf-8", "replace").strip().splitlines()
    return lines[-1][:200] if lines else "no output"
