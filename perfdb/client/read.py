"""`perfdb read FILE`: print a foreign result file as a normalised reading.

Exit codes: 0 read, 2 unreadable, or nothing in it but rejected items.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfdb.formats import Reading

_DIRECTIONS = {"lower": True, "higher": False}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """Add the subcommand. The readers themselves are imported only when it runs."""
    parser = subparsers.add_parser(
        "read",
        help="print a result file of another tool as normalised JSON",
        description=(
            "Read a result file of another tool and print it as JSON. The format is told by the content. "
            "Exit code 2: the file cannot be read (format, position and reason on standard error)."
        ),
    )
    parser.add_argument("file", metavar="FILE", help="result file, also .gz; - is standard input")
    parser.add_argument("--format", default="auto", help="name of the format (default: by content)")
    parser.add_argument(
        "--direction",
        choices=tuple(_DIRECTIONS),
        help="which way is better, for metrics where neither format nor unit says",
    )
    parser.add_argument("--max-bytes", type=_size, default=None, metavar="N", help="cap on the unpacked size")
    parser.add_argument(
        "--history", action="store_true", help="FILE is a folder or a history: print one reading a line"
    )
    parser.add_argument("--list-formats", action=_ListFormats, nargs=0, help="list the formats and exit")
    parser.set_defaults(run=run)
    return parser


def run(args: argparse.Namespace) -> int:
    """Run the subcommand; returns the exit code and never raises for what a file holds."""
    from perfdb.formats import FormatError

    try:
        return _history(args) if args.history else _one(args)
    except FormatError as error:
        _complain(f"perfdb read: {args.file}: {error}")
        return 2
    except BrokenPipeError:
        # `perfdb read x | head`: nobody listens any more, and the interpreter must not flush into the pipe at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def _one(args: argparse.Namespace) -> int:
    from perfdb.formats import MAX_BYTES, FormatError, read

    cap = MAX_BYTES if args.max_bytes is None else args.max_bytes
    data: bytes | str = args.file
    if args.file == "-":
        data = sys.stdin.buffer.read(cap + 1)
        if len(data) > cap:
            raise FormatError(args.format, f"byte {cap}", f"larger than {cap} bytes")
    reading = read(data, args.format, lower_is_better=_DIRECTIONS.get(args.direction), max_bytes=cap)
    print(_json(reading, indent=2), flush=True)
    for rejected in reading.rejected:
        _complain(f"perfdb read: {args.file}: {reading.format}: {rejected.at}: rejected: {rejected.reason}")
    return 2 if reading.rejected and not reading.benchmarks else 0


def _history(args: argparse.Namespace) -> int:
    from perfdb.formats import MAX_BYTES
    from perfdb.formats.history import history

    good = 0
    cap = MAX_BYTES if args.max_bytes is None else args.max_bytes
    for item in history(
        args.file, args.format, lower_is_better=_DIRECTIONS.get(args.direction), max_bytes=cap
    ):
        if item.reading is None:
            _complain(f"perfdb read: {item.origin}: rejected: {item.error}")
            continue
        good += 1
        print(_json(item.reading, indent=None))
    return 0 if good else 2


def _json(reading: Reading, *, indent: int | None) -> str:
    return json.dumps(reading.to_json(), indent=indent, allow_nan=False)


def _complain(text: str) -> None:
    """To standard error, whatever its encoding can show."""
    encoding = sys.stderr.encoding or "ascii"
    print(text.encode(encoding, "backslashreplace").decode(encoding), file=sys.stderr)


def _size(text: str) -> int:
    value = int(text)
    if value <= 0:
        raise argparse.ArgumentTypeError("must be positive")
    return value


class _ListFormats(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from perfdb.formats import FORMATS

        for each in FORMATS.values():
            print(f"{each.name:32} {each.title}")
        parser.exit()
