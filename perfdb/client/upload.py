"""`perfdb upload`: send result files; if the server is away they wait in a spool and go with the next upload."""

from __future__ import annotations

import argparse
import json
import os
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from perfdb.client.output import complain
from perfdb.client.settings import Server, UsageError, add_server_options, server_of, spool_folder

EXIT_SPOOLED = 2


@dataclass(frozen=True, slots=True)
class _File:
    """A result file ready to be sent. left_out: items of it that could not be read."""

    path: str
    body: bytes
    left_out: int


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "upload",
        help="send result files to the server",
        description="The token is read from PERFDB_TOKEN. Sending the same file twice stores it once.",
    )
    parser.add_argument(
        "file", nargs="*", help="result files of any format; none: send what waits in the spool"
    )
    parser.add_argument("--format", default="auto")
    parser.add_argument(
        "--direction", choices=("lower", "higher"), help="for metrics where the file does not say"
    )
    parser.add_argument("--commit", help="SHA measured (default: the file's, else HEAD here)")
    parser.add_argument("--branch", help="branch (PERFDB_BRANCH; default: the project's main branch)")
    parser.add_argument("--pull-request", type=int, help="number of the pull request")
    parser.add_argument("--pool", default="default", help="pool of the machine (default: %(default)s)")
    parser.add_argument(
        "--repo", default=".", help="repository that tells the commit's ancestors (default: here)"
    )
    add_server_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from perfdb.client.http import Refused, ServerAway

    server = server_of(args)
    files = [_prepare(args, path) for path in args.file]
    waiting = sorted(_waiting(server))
    if not files and not waiting:
        raise UsageError("no file given, and nothing waits in the spool")
    for number, file in enumerate(files):
        try:
            print(f"{file.path}: {_send(server, file.body)}")
        except ServerAway as error:
            for later in files[number:]:
                _spool(server, later.body)
            left = len(files) - number
            wait = "1 upload waits" if left == 1 else f"{left} uploads wait"
            complain(f"{error}. {wait} in {spool_folder()}; 'perfdb upload' sends what waits")
            return EXIT_SPOOLED
        except Refused as error:
            complain(f"{file.path}: {error}")
            return 2
    code = _empty_spool(server, waiting)
    return 2 if any(file.left_out for file in files) else code


def _empty_spool(server: Server, waiting: list[Path]) -> int:
    from perfdb.client.http import Refused, ServerAway

    refused = False
    for path in waiting:
        try:
            print(f"{path.name}: {_send(server, path.read_bytes())}")
        except ServerAway as error:
            complain(str(error))
            return EXIT_SPOOLED
        except Refused as error:
            complain(f"{path}: {error} (kept as {path.name}.refused)")
            path.rename(path.with_name(path.name + ".refused"))
            refused = True
            continue
        path.unlink()
        path.with_suffix(".to").unlink(missing_ok=True)
    return 2 if refused else 0


def _prepare(args: argparse.Namespace, path: str) -> _File:
    """Read the file; say what is left out of it. Raises UsageError where nothing is left to send."""
    from perfdb.client import measure, results

    reading = results.load(
        path, format=args.format, lower_is_better={"lower": True, "higher": False}.get(args.direction or "")
    )
    for warning in reading.warnings:
        complain(f"{path}: {warning}")
    for item in reading.rejected:
        complain(f"{path}: {item.at} left out: {item.reason}")
    if not reading.benchmarks:
        raise UsageError(f"{path}: no result in it; nothing is sent")
    if reading.rejected and not any(each.metrics for each in reading.benchmarks):
        raise UsageError(f"{path}: nothing usable is left of it; nothing is sent")
    facts = measure.commit_facts(Path(args.repo))
    sha = args.commit or (reading.commit.id if reading.commit else None) or (facts and facts["sha"])
    if sha is None:
        raise UsageError(f"{path}: it names no commit, and {args.repo} is no git repository: give --commit")
    commit = facts if facts and facts["sha"].startswith(str(sha)) else {"sha": str(sha)}
    for each in reading.benchmarks:
        if each.status == "skipped":
            complain(f"{path}: {each.name} left out: skipped {each.reason}".rstrip())
    body = results.batch(
        reading,
        commit=commit,
        branch=args.branch or os.environ.get("PERFDB_BRANCH"),
        pull_request=args.pull_request,
        pool=args.pool,
    )
    return _File(path, results.encode(body), left_out=len(reading.rejected))


def _send(server: Server, body: bytes) -> str:
    from perfdb.client.http import Api

    api = Api(server)
    answer = api.post(api.project_path("uploads"), body)
    for item in answer["rejected"]:
        complain(f"{item['path']} rejected: {item['reason']}")
    again = f", {answer['duplicates']} were there already" if answer["duplicates"] else ""
    return f"{answer['created']} runs stored{again}"


def _spool(server: Server, body: bytes) -> None:
    """Written beside and renamed, so that a half-written file is never sent."""
    folder = spool_folder()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    name = f"{time.time_ns()}-{uuid.uuid4().hex[:8]}"
    partial = folder / f"{name}.partial"
    partial.write_bytes(body)
    (folder / f"{name}.to").write_text(json.dumps({"server": server.url, "project": server.project}))
    partial.rename(folder / f"{name}.json")


def _waiting(server: Server) -> list[Path]:
    """Spooled uploads for this server and project."""
    out = []
    for path in spool_folder().glob("*.json"):
        try:
            place = json.loads(path.with_suffix(".to").read_text())
        except (OSError, ValueError):
            continue
        if place == {"server": server.url, "project": server.project}:
            out.append(path)
    return out
