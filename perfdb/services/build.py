"""A commit on disk: clean checkout, one build per (commit, command), a fresh copy for every job.

The built tree is kept and never run in; a job works on a copy, so that nothing a benchmark writes reaches another.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

from perfdb.manifest import BuildTable, Manifest
from perfdb.models import Build, BuildStatus, Commit, Project
from perfdb.vcs import Repository

KEPT_BUILDS = 24
LOG_LIMIT = 20_000
_PASSED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "CC", "CXX", "CUDA_HOME")


class BuildFailed(RuntimeError):
    """The build command failed or ran out of time. `build` holds status and log; it is no performance verdict."""

    def __init__(self, build: Build) -> None:
        self.build = build
        super().__init__(f"the build {BuildStatus(build.status).label}")


@dataclass(frozen=True, slots=True)
class Checkout:
    """A commit ready to be measured. `root` is a private copy; `build` is None where the manifest builds nothing."""

    root: Path
    build: Build | None


def _folder(project: Project) -> Path:
    return Path(settings.PERFDB_DATA) / "builds" / str(project.pk)


@contextmanager
def checkout(
    mirror: Repository, commit: Commit, manifest: Manifest, *, alive: Callable[[], None] = lambda: None
) -> Iterator[Checkout]:
    """Check out and build `commit`, or reuse its build. `alive` is called while waiting and may raise to stop.

    Raises BuildFailed (also when an earlier build of the same commit and command failed), perfdb.vcs.GitError.
    """
    command = manifest.build.argv() if manifest.build else ()
    key = hashlib.sha256("\x00".join(command).encode()).hexdigest()
    built = _folder(commit.project) / f"{commit.sha}-{key[:16]}"
    build = _build(mirror, commit, manifest.build, key, built, alive)
    work = built.with_name(f"{built.name}.job-{os.getpid()}-{time.monotonic_ns()}")
    try:
        shutil.copytree(built, work, symlinks=True)
        yield Checkout(work, build)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _build(
    mirror: Repository,
    commit: Commit,
    table: BuildTable | None,
    key: str,
    built: Path,
    alive: Callable[[], None],
) -> Build | None:
    known = Build.objects.filter(commit=commit, command_hash=key).first()
    if known and known.status in (BuildStatus.FAILED, BuildStatus.TIMEOUT):
        raise BuildFailed(known)
    if built.is_dir() and (table is None or (known and known.status == BuildStatus.OK)):
        built.touch()
        return known
    partial = built.with_name(built.name + ".partial")
    try:
        mirror.add_worktree(commit.sha, partial)
        (partial / ".git").unlink(missing_ok=True)
        build = None if table is None else _run(commit, table, key, partial, alive)
        _forget_old(built.parent)
        shutil.rmtree(built, ignore_errors=True)
        partial.rename(built)
    finally:
        mirror.remove_worktree(partial)
    return build


def _run(commit: Commit, table: BuildTable, key: str, root: Path, alive: Callable[[], None]) -> Build:
    argv = [sys.executable if part == "{python}" else part for part in table.argv()]
    build, _ = Build.objects.update_or_create(
        commit=commit,
        command_hash=key,
        defaults={"command": " ".join(table.argv()), "status": BuildStatus.RUNNING, "log": ""},
    )
    started = time.monotonic()
    status, log = _execute(argv, root, table.timeout_s, alive)
    build.status = status
    build.log = log[-LOG_LIMIT:].replace("\x00", "\ufffd")
    build.duration_s = time.monotonic() - started
    build.artifact_hash = tree_digest(root) if status == BuildStatus.OK else ""
    build.save()
    if status != BuildStatus.OK:
        raise BuildFailed(build)
    return build


def _execute(
    argv: Sequence[str], root: Path, timeout_s: float, alive: Callable[[], None]
) -> tuple[BuildStatus, str]:
    environment = {name: os.environ[name] for name in _PASSED if name in os.environ}
    log_path = root.with_name(root.name + ".log")
    with log_path.open("wb") as log:
        try:
            process = subprocess.Popen(
                argv,
                cwd=root,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        except OSError as error:
            log_path.unlink()
            return BuildStatus.FAILED, f"cannot start {argv[0]!r}: {error.strerror}"
        deadline = time.monotonic() + timeout_s
        status = BuildStatus.TIMEOUT
        try:
            while time.monotonic() < deadline:
                try:
                    code = process.wait(timeout=min(2.0, max(0.01, deadline - time.monotonic())))
                except subprocess.TimeoutExpired:
                    alive()
                    continue
                status = BuildStatus.OK if code == 0 else BuildStatus.FAILED
                break
        finally:
            _end_group(process)
    text = log_path.read_text(encoding="utf-8", errors="replace")
    log_path.unlink()
    return status, text


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Nothing that a build started outlives it."""
    try:
        os.killpg(process.pid, 9)
    except ProcessLookupError:
        return
    process.wait()


def tree_digest(root: Path) -> str:
    """SHA-256 over the paths and contents of a built tree; equal on both sides of a change means: no code cause."""
    total = hashlib.sha256()
    for path in sorted(p for p in root.rglob("*") if p.is_file() and not p.is_symlink()):
        if path.suffix == ".pyc":
            continue  # holds its source's time of change
        total.update(str(path.relative_to(root)).encode() + b"\x00")
        total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def _forget_old(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    kept = [p for p in folder.iterdir() if p.is_dir() and "." not in p.name]
    for path in sorted(kept, key=lambda p: p.stat().st_mtime)[: max(0, len(kept) - KEPT_BUILDS)]:
        shutil.rmtree(path, ignore_errors=True)
