"""Where the server is and who asks: options first, then environment variables. Tokens are never written anywhere."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from pathlib import Path

DEFAULT_SERVER = "http://localhost:8000"


class UsageError(Exception):
    """Something is missing or does not fit; the message says what to give. Exit code 2."""


@dataclass(frozen=True, slots=True)
class Server:
    """`token` is None for an anonymous reader."""

    url: str
    project: str
    token: str | None


def add_server_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--server", help=f"address (PERFDB_SERVER; default {DEFAULT_SERVER})")
    parser.add_argument(
        "--project", help="slug of the project (PERFDB_PROJECT; default: name in perfdb.toml)"
    )


def server_of(args: argparse.Namespace) -> Server:
    """Raises UsageError where no project is named."""
    project = args.project or os.environ.get("PERFDB_PROJECT") or _project_here()
    if not project:
        raise UsageError("no project: give --project, set PERFDB_PROJECT or run where perfdb.toml is")
    url = (args.server or os.environ.get("PERFDB_SERVER") or DEFAULT_SERVER).rstrip("/")
    return Server(url, project, os.environ.get("PERFDB_TOKEN") or None)


def _project_here() -> str | None:
    from perfdb.manifest import FILE_NAME, ManifestError, load

    path = Path(FILE_NAME)
    if not path.is_file():
        return None
    try:
        return load(path).project.name
    except ManifestError as error:
        raise UsageError(str(error)) from None


def spool_folder() -> Path:
    """Where uploads wait while the server is away (PERFDB_SPOOL)."""
    base = os.environ.get("PERFDB_SPOOL")
    if base:
        return Path(base)
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "perfdb" / "spool"
