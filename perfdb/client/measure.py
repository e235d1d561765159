"""Measuring here, without a server: checkouts, builds and launches for `run` and `compare`."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from perfdb.client.settings import UsageError
from perfdb.manifest import FILE_NAME, Case, Manifest, ManifestError, load
from runners.result import LaunchRequest, LaunchResult

_GRACE_S = 120.0


class NoRunner(UsageError):
    """`python -m runners` did not give a result."""


@dataclass(frozen=True, slots=True)
class Tree:
    """A checked-out, built commit (or the working tree), its manifest, and what git says of it (None: no git)."""

    root: Path
    manifest: Manifest
    commit: dict[str, Any] | None


@contextmanager
def tree(path: Path, commit: str | None, manifest_name: str = FILE_NAME) -> Iterator[Tree]:
    """The working tree at `path`, or a clean checkout of `commit` of its repository, built. Raises UsageError."""
    from perfdb.vcs import GitError, Repository

    if commit is None:
        yield Tree(path.resolve(), _manifest(path / manifest_name), commit_facts(path))
        return
    repository = Repository(path.resolve())
    with tempfile.TemporaryDirectory(prefix="perfdb-") as folder:
        at = Path(folder) / "tree"
        try:
            with repository.worktree(commit, at):
                manifest = _manifest(at / manifest_name)
                _build(manifest, at)
                yield Tree(at, manifest, commit_facts(at))
        except GitError as error:
            raise UsageError(str(error)) from None


def _manifest(path: Path) -> Manifest:
    try:
        return load(path)
    except ManifestError as error:
        raise UsageError(str(error)) from None


def _build(manifest: Manifest, root: Path) -> None:
    if manifest.build is None:
        return
    argv = [sys.executable if part == "{python}" else part for part in manifest.build.argv()]
    try:
        done = subprocess.run(
            argv,
            cwd=root,
            capture_output=True,
            timeout=manifest.build.timeout_s,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"build: {error}") from None
    if done.returncode:
        lines = (done.stdout + done.stderr).decode("utf-8", "replace").strip().splitlines()
        raise UsageError("the build failed: " + (lines[-1] if lines else f"exit code {done.returncode}"))


def commit_facts(path: Path, *, depth: int = 200) -> dict[str, Any] | None:
    """What an upload says of the commit at `path`; None where it is no git repository."""
    from perfdb.vcs import GitError, Repository

    try:
        line = Repository(path.resolve()).first_parents("HEAD", depth=depth)
    except GitError:
        return None
    head = line[-1]
    return {
        "sha": head.sha,
        "parents": list(head.parents),
        "first_parents": [info.sha for info in reversed(line[:-1])],
        "author": head.author,
        "subject": head.subject,
        "committed_at": head.committed_at.isoformat(),
    }


def select(
    manifest: Manifest, benchmarks: Sequence[str], params: Sequence[str], tiers: Sequence[str]
) -> list[Case]:
    """The cases that the options name. Raises UsageError where they name none."""
    wanted = dict(_pair(text) for text in params)
    out = [
        case
        for case in manifest.cases()
        if (not benchmarks or case.spec.benchmark in benchmarks)
        and (not tiers or case.spec.tier in tiers)
        and all(_same(case.spec.params.get(key), value) for key, value in wanted.items())
    ]
    if not out:
        names = ", ".join(table.name for table in manifest.benchmarks)
        raise UsageError(f"no case fits (benchmarks: {names})")
    return out


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UsageError(f"--param {text!r}: give NAME=VALUE")
    return key, value


def _same(value: Any, text: str) -> bool:
    return (str(value).lower() if isinstance(value, bool) else str(value)) == text


def launch(
    tree: Tree, cases: Sequence[Case], *, number: int, device: str, quiet: Callable[[str], None] | None = None
) -> LaunchResult:
    """One process launch of these cases. Raises NoRunner."""
    python = tree.manifest.project.python
    request = LaunchRequest(
        launch_id=str(uuid.uuid4()),
        root=str(tree.root),
        cases=tuple(case.spec for case in cases),
        seed=number,
        python=str(tree.root / python) if python and "/" in python and not python.startswith("/") else python,
        device=device,
        cpus=tuple(sorted(os.sched_getaffinity(0))),
    )
    limit = sum(case.spec.timeout_s for case in cases) + _GRACE_S
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "runners"],
            input=request.to_json().encode(),
            capture_output=True,
            timeout=limit,
            check=False,
            env=os.environ,
        )
    except subprocess.TimeoutExpired:
        raise NoRunner(f"the runner gave no result within {limit:.0f} s") from None
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise NoRunner(lines[-1] if lines else f"the runner ended with {done.returncode}")
    return msgspec.json.decode(done.stdout, type=LaunchResult)
