"""Git: the only module that runs it. A project is a bare mirror; a commit is measured in a clean worktree.

Nothing passes through a shell. References and paths from outside are checked before they become arguments, hooks
and interactive prompts are off, and every call has a time limit.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

_TIMEOUT_S = 600.0
_SHA = re.compile(r"^[0-9a-f]{7,64}$")
_FIELD, _RECORD = "\x1f", "\x1e"
_FORMAT = _FIELD.join(["%H", "%P", "%an", "%ct", "%s", "%B"]) + _RECORD


class GitError(RuntimeError):
    """Git refused. The message is one plain sentence with git's own last line."""


class NoRepository(GitError):
    """The path or URL is no repository that git can read."""


class CommitGone(GitError):
    """The commit is not (or no longer) in the repository."""


@dataclass(frozen=True, slots=True)
class CommitInfo:
    """One revision as git tells it. `parents` in git's order: the first is the branch's own."""

    sha: str
    parents: tuple[str, ...]
    author: str
    committed_at: datetime
    subject: str
    message: str


@dataclass(frozen=True, slots=True)
class Credential:
    """How to read a private repository: a token for HTTPS or a key file for SSH. Never logged, never an argument."""

    token: str | None = None
    key_file: Path | None = None


class Repository:
    """A bare mirror at `path`. `open_mirror` makes one; methods raise GitError."""

    def __init__(self, path: Path, *, credential: Credential | None = None) -> None:
        self.path = path
        self._credential = credential or Credential()

    # -- fetching ------------------------------------------------------------------------------------------
    @classmethod
    def open_mirror(cls, url: str, path: Path, *, credential: Credential | None = None) -> Repository:
        """Make the mirror of `url` at `path` unless it is there. Raises NoRepository; leaves nothing behind then."""
        repository = cls(path, credential=credential)
        _check_url(url)
        if (path / "HEAD").is_file():
            repository._git("config", "remote.origin.url", url)
            return repository
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(path.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        try:
            _run(
                ["clone", "--quiet", "--mirror", "--end-of-options", url, str(partial)],
                cwd=path.parent,
                credential=repository._credential,
            )
        except GitError as error:
            shutil.rmtree(partial, ignore_errors=True)
            raise NoRepository(
                f"{_without_secret(url)} is no repository that git can read: {error}"
            ) from None
        partial.rename(path)
        return repository

    def fetch(self) -> None:
        """Bring every ref up to date, also after a force push. Commits that a run needs stay until pruned by git."""
        try:
            self._git("fetch", "--quiet", "--prune", "--force", "origin")
        except GitError as error:
            raise NoRepository(f"cannot fetch: {error}") from None

    # -- reading -------------------------------------------------------------------------------------------
    def branches(self) -> dict[str, str]:
        """Branch name to the SHA of its head."""
        text = self._git("for-each-ref", "--format=%(refname:strip=2)%1f%(objectname)", "refs/heads")
        return dict(line.split(_FIELD) for line in text.splitlines())

    def default_branch(self) -> str:
        """The branch that HEAD names."""
        return self._git("symbolic-ref", "--short", "HEAD").strip()

    def resolve(self, reference: str) -> str:
        """The full SHA that a branch, tag or abbreviated SHA means. Raises CommitGone."""
        _check_reference(reference)
        try:
            return self._git(
                "rev-parse", "--verify", "--quiet", "--end-of-options", f"{reference}^{{commit}}"
            ).strip()
        except GitError:
            raise CommitGone(f"{reference!r} names no commit of this repository") from None

    def first_parents(self, reference: str, *, depth: int | None = None) -> list[CommitInfo]:
        """The branch's own line of commits, oldest first, at most the newest `depth`."""
        limit = [f"--max-count={depth}"] if depth is not None else []
        return list(reversed(self._log("--first-parent", *limit, self.resolve(reference))))

    def commit(self, reference: str) -> CommitInfo:
        """One commit. Raises CommitGone."""
        return self._log("--max-count=1", self.resolve(reference))[0]

    def between(self, good: str, bad: str) -> list[CommitInfo]:
        """First-parent commits after `good` up to and including `bad`, oldest first."""
        return list(reversed(self._log("--first-parent", f"{self.resolve(good)}..{self.resolve(bad)}")))

    def merged_side(self, merge: str) -> list[CommitInfo]:
        """The commits that a merge brought in, in first-parent order of its side, oldest first."""
        info = self.commit(merge)
        if len(info.parents) < 2:
            return []
        return list(reversed(self._log("--first-parent", f"{info.parents[0]}..{info.parents[1]}")))

    def merge_base(self, a: str, b: str) -> str | None:
        """The best common ancestor, None where the histories share none."""
        done = _run(
            ["merge-base", self.resolve(a), self.resolve(b)],
            cwd=self.path,
            credential=self._credential,
            good=(0, 1),
        )
        return done.strip() or None

    def is_ancestor(self, ancestor: str, of: str) -> bool:
        """Whether `ancestor` is reachable from `of` (a commit is its own ancestor)."""
        return self.merge_base(ancestor, of) == self.resolve(ancestor)

    def changed_paths(self, old: str, new: str) -> list[str]:
        """Paths that differ between two commits."""
        text = self._git("diff", "--name-only", "-z", self.resolve(old), self.resolve(new))
        return [path for path in text.split("\0") if path]

    def submodule_rolls(self, old: str, new: str) -> dict[str, tuple[str, str]]:
        """Submodules whose pinned commit moved: path to (old, new)."""
        text = self._git("diff", "--raw", "-z", "--abbrev=64", self.resolve(old), self.resolve(new))
        parts = text.split("\0")
        rolls = {}
        for head, path in zip(parts[::2], parts[1::2], strict=False):
            fields = head.lstrip(":").split()
            if len(fields) >= 4 and "160000" in fields[:2]:
                rolls[path] = (fields[2], fields[3])
        return rolls

    def file_at(self, reference: str, path: str) -> str | None:
        """A text file as a commit has it, None where the commit lacks it."""
        sha = self.resolve(reference)
        try:
            return self._git("cat-file", "blob", f"{sha}:{path}")
        except GitError:
            return None

    def tree_hash(self, reference: str) -> str:
        """The hash of a commit's whole tree: equal hashes mean equal sources."""
        return self._git("rev-parse", f"{self.resolve(reference)}^{{tree}}").strip()

    # -- worktrees -----------------------------------------------------------------------------------------
    @contextmanager
    def worktree(self, reference: str, at: Path) -> Iterator[Path]:
        """A clean checkout of a commit at `at`, removed afterwards, whatever happened in it."""
        sha = self.resolve(reference)
        self.add_worktree(sha, at)
        try:
            yield at
        finally:
            self.remove_worktree(at)

    def add_worktree(self, sha: str, at: Path) -> None:
        """Check `sha` out at `at`; what lay there is removed first."""
        self.remove_worktree(at)
        at.parent.mkdir(parents=True, exist_ok=True)
        self._git("worktree", "add", "--quiet", "--detach", "--force", str(at), sha)

    def remove_worktree(self, at: Path) -> None:
        shutil.rmtree(at, ignore_errors=True)
        self._git("worktree", "prune")

    # -- inside --------------------------------------------------------------------------------------------
    def _log(self, *arguments: str) -> list[CommitInfo]:
        text = self._git("log", f"--format={_FORMAT}", *arguments, "--")
        return [_parse(record) for record in text.split(_RECORD) if record.strip()]

    def _git(self, *arguments: str) -> str:
        return _run(arguments, cwd=self.path, credential=self._credential)


def _parse(record: str) -> CommitInfo:
    sha, parents, author, at, subject, message = record.lstrip("\n").split(_FIELD, 5)
    return CommitInfo(
        sha=sha,
        parents=tuple(parents.split()),
        author=author,
        committed_at=datetime.fromtimestamp(int(at), tz=UTC),
        subject=subject,
        message=message.strip(),
    )


def _run(
    arguments: Sequence[str],
    *,
    cwd: Path,
    credential: Credential,
    good: tuple[int, ...] = (0,),
    extra: dict[str, str] | None = None,
) -> str:
    options = ["core.hooksPath=/dev/null", "protocol.ext.allow=never", "safe.directory=*", "gc.auto=0"]
    if credential.token:
        # Through the environment: command lines are visible to every user of the machine.
        options.append(
            "credential.helper=!f() { echo username=x-access-token; echo password=$PERFDB_GIT_TOKEN; }; f"
        )
    command = ["git", *(part for option in options for part in ("-c", option)), *arguments]
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env=_environment(credential) | (extra or {}),
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        raise GitError(f"git {arguments[0]} took more than {_TIMEOUT_S:.0f} s") from None
    except FileNotFoundError as error:
        missing = "git is not installed" if not cwd.exists() or error.filename == "git" else str(error)
        raise GitError(missing if cwd.exists() else f"{cwd} is gone") from None
    if done.returncode not in good:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise GitError(lines[-1] if lines else f"git {arguments[0]} ended with {done.returncode}")
    return done.stdout.decode("utf-8", "replace")


def _environment(credential: Credential) -> dict[str, str]:
    keep = {key: os.environ[key] for key in ("PATH", "HOME", "SSH_AUTH_SOCK", "TMPDIR") if key in os.environ}
    keep |= {"GIT_TERMINAL_PROMPT": "0", "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C.UTF-8"}
    ssh = "ssh -o BatchMode=yes"
    if credential.key_file:
        ssh += f" -o IdentitiesOnly=yes -i '{str(credential.key_file).replace(chr(39), '')}'"
    keep["GIT_SSH_COMMAND"] = ssh
    if credential.token:
        keep["PERFDB_GIT_TOKEN"] = credential.token
    return keep


def _check_reference(reference: str) -> None:
    if (
        not reference
        or reference.startswith("-")
        or re.search(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{", reference)
    ):
        raise CommitGone(f"{reference!r} is no valid reference")


def _check_url(url: str) -> None:
    if not url or url.startswith("-") or re.search(r"[\x00-\x1f\x7f]", url) or re.match(r"\w+::", url):
        raise NoRepository(f"{url!r} is no repository path or URL")


def _without_secret(url: str) -> str:
    return re.sub(r"//[^/@]*@", "//", url)


def is_sha(text: str) -> bool:
    """Whether `text` looks like a (possibly abbreviated) SHA."""
    return bool(_SHA.match(text))


class WorkingCopy:
    """A new repository with a working tree, for histories written by a script (the demo). Raises GitError."""

    def __init__(self, path: Path, *, branch: str = "main") -> None:
        self.path = path
        path.mkdir(parents=True)
        self._run("init", "--quiet", f"--initial-branch={branch}")

    def commit(self, message: str, *, author: str, email: str, at: datetime) -> str:
        """Commit the whole tree as it lies and give the SHA; equal trees and arguments give equal SHAs."""
        self._run("add", "--all")
        stamp = f"{int(at.timestamp())} +0000"
        identity = {
            f"GIT_{role}_{key}": value
            for role in ("AUTHOR", "COMMITTER")
            for key, value in (("NAME", author), ("EMAIL", email), ("DATE", stamp))
        }
        self._run("commit", "--quiet", "--allow-empty", "--message", message, extra=identity)
        return self._run("rev-parse", "HEAD").strip()

    def _run(self, *arguments: str, extra: dict[str, str] | None = None) -> str:
        return _run(arguments, cwd=self.path, credential=Credential(), extra=extra)
