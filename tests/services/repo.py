"""Small real git repositories for tests."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


class GitRepo:
    """A repository that tests commit to; every commit has a fixed author and a date one minute after the last."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._minute = 0
        path.mkdir(parents=True)
        self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *arguments: str) -> str:
        stamp = f"2026-01-01T{self._minute // 60:02d}:{self._minute % 60:02d}:00+00:00"
        identity = {
            "GIT_AUTHOR_NAME": "A. Tester",
            "GIT_AUTHOR_EMAIL": "tester@example.invalid",
            "GIT_COMMITTER_NAME": "A. Tester",
            "GIT_COMMITTER_EMAIL": "tester@example.invalid",
            "GIT_AUTHOR_DATE": stamp,
            "GIT_COMMITTER_DATE": stamp,
            "GIT_CONFIG_GLOBAL": "/dev/null",
        }
        done = subprocess.run(
            ["git", *arguments],
            cwd=self.path,
            env=os.environ | identity,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    def write(self, files: dict[str, str]) -> None:
        for name, text in files.items():
            path = self.path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def commit(self, message: str, files: dict[str, str] | None = None) -> str:
        """Write files, commit everything and give the SHA."""
        self._minute += 1
        self.write(files or {})
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")
