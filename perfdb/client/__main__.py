"""The `perfdb` command. Subcommands import what they need when they run, so that `--help` is instant."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from perfdb.client import bisect, check, compare, gate, read, run, upload
from perfdb.client.output import complain
from perfdb.client.settings import UsageError

VERSION = "0.1.0"


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="perfdb",
        description="Did this commit make it slower, and can that answer be trusted?",
        epilog="Environment: PERFDB_SERVER, PERFDB_TOKEN, PERFDB_PROJECT, PERFDB_BRANCH, PERFDB_SPOOL, NO_COLOR.",
    )
    top.add_argument("--version", action="version", version=f"perfdb {VERSION}")
    subparsers = top.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for module in (check, run, read, compare, upload, gate, bisect):
        module.add_parser(subparsers)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Exit codes: 0 pass, 1 regression, 2 error, 3 nothing could be concluded or nothing was measured."""
    args = parser().parse_args(argv)
    try:
        return int(args.run(args))
    except UsageError as error:
        complain(str(error))
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
