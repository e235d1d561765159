"""The `perfdb` command. A subcommand is imported when it is called, so that `--help` is instant."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from perfdb.client.output import complain
from perfdb.client.settings import UsageError

VERSION = "0.1.0"


# Module of each command, and its line in `perfdb --help`: only the module of the command that is called is imported.
COMMANDS = {
    "check": "check perfdb.toml and list its cases",
    "run": "measure here, no server",
    "read": "print a result file of another tool as normalised JSON",
    "compare": "compare two result files, no server",
    "upload": "send result files to the server",
    "gate": "ask the server whether a commit may pass",
    "bisect": "find the first bad commit here, under noise",
    "token": "make, list and revoke tokens of a project",
}


def parser(command: str | None) -> argparse.ArgumentParser:
    """The parser with the options of `command`; the other commands are named only."""
    top = argparse.ArgumentParser(
        prog="perfdb",
        description="Did this commit make it slower, and can that answer be trusted?",
        epilog="Environment: PERFDB_SERVER, PERFDB_TOKEN, PERFDB_PROJECT, PERFDB_BRANCH, PERFDB_SPOOL, NO_COLOR.",
    )
    top.add_argument("--version", action="version", version=f"perfdb {VERSION}")
    subparsers = top.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, line in COMMANDS.items():
        if name == command:
            import_module(f"perfdb.client.{name}").add_parser(subparsers)
        else:
            subparsers.add_parser(name, help=line)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Exit codes: 0 pass, 1 regression, 2 error, 3 nothing could be concluded or nothing was measured."""
    given = sys.argv[1:] if argv is None else list(argv)
    # No option of the top level takes a value, so the first word is the command.
    command = next((word for word in given if not word.startswith("-")), None)
    args = parser(command).parse_args(given)
    try:
        return int(args.run(args))
    except UsageError as error:
        complain(str(error))
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
