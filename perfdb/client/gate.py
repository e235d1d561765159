"""`perfdb gate`: may this commit pass? The server decides; here it is only shown."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from perfdb.client import output
from perfdb.client.settings import UsageError, add_server_options, server_of

_LISTS = (
    "regressions",
    "broken",
    "advisory",
    "missing",
    "invalid",
    "inconclusive",
    "changed",
    "improvements",
    "new",
)
REPORTS = ("json", "markdown", "github", "junit", "sarif")
_WORDS = {"advisory": "regressions that do not block", "new": "new, without a base"}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "gate",
        help="ask the server whether a commit may pass",
        description="Exit codes: 0 pass, 1 regression, 2 error, 3 nothing could be concluded or nothing was measured.",
    )
    parser.add_argument("--base", help="branch or SHA to compare with (default: the project's main branch)")
    parser.add_argument("--head", help="SHA or branch (default: HEAD here)")
    parser.add_argument(
        "--wait", type=float, default=0.0, metavar="MINUTES", help="wait for results that are under way"
    )
    parser.add_argument("--output", choices=("text", *REPORTS), default="text")
    add_server_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from perfdb.client.http import Api, Refused, ServerAway

    api = Api(server_of(args))
    params = {"head": args.head or _head()}
    if args.base:
        params["base"] = args.base
    deadline = time.monotonic() + 60 * args.wait
    try:
        while True:
            answer = api.get(api.project_path("gate"), **params)
            if answer["exit_code"] != 3 or time.monotonic() > deadline:
                break
            time.sleep(min(10.0, max(0.1, deadline - time.monotonic())))
    except (Refused, ServerAway) as error:
        output.complain(str(error))
        return 2
    print(show(answer, args.output))
    return int(answer["exit_code"])


def _head() -> str:
    from perfdb.client.measure import commit_facts

    facts = commit_facts(Path(), depth=1)
    if facts is None:
        raise UsageError("no git repository here: give --head")
    return str(facts["sha"])


def show(answer: dict[str, Any], how: str) -> str:
    """The answer as text, JSON, one comment's Markdown, or what a CI system reads."""
    if how == "json":
        return json.dumps(answer, indent=1)
    if how in ("github", "junit", "sarif"):
        from perfdb.client import reports

        made: str = {"github": reports.github, "junit": reports.junit, "sarif": reports.sarif}[how](answer)
        return made
    decided, total = answer["coverage"]["decided"], answer["coverage"]["total"]
    head = f"perfdb: {answer['decision']}"
    facts = f"{answer['note']}; {decided} of {total} measurements decided, {answer['same']} the same"
    if answer["launches_needed"]:
        more, minutes = answer["launches_needed"], answer["minutes_needed"]
        facts += f"; {more} more launches (about {minutes:g} min) would settle the rest"
    if how == "markdown":
        lines = [f"### {output.neutral(head)}", "", output.neutral(facts)]
        for name in _LISTS:
            lines += _markdown(name, answer[name])
        return output.cut(lines)
    lines = [
        output.coloured(
            head, {"pass": "improved", "fail": "regressed"}.get(answer["decision"], "inconclusive")
        ),
        facts,
    ]
    for name in _LISTS:
        if answer[name]:
            lines += ["", f"{_WORDS.get(name, name)}:"]
            lines += [f"  {line}" for line in output.table([_cells(cell) for cell in answer[name]])]
    return "\n".join(lines)


def _markdown(name: str, cells: list[dict[str, Any]]) -> list[str]:
    if not cells:
        return []
    lines = [
        "",
        f"**{_WORDS.get(name, name)}** ({len(cells)})",
        "",
        "| case | metric | change | interval |",
        "|---|---|---|---|",
    ]
    return lines + ["| " + " | ".join(output.neutral(text) for text in _cells(cell)) + " |" for cell in cells]


def _cells(cell: dict[str, Any]) -> tuple[str, str, str, str]:
    inside = ", ".join(f"{key}={value}" for key, value in sorted(cell["params"].items()))
    name = f"{cell['benchmark']}[{inside}]" if inside else str(cell["benchmark"])
    verdict = cell["verdict"]
    if verdict is None:
        failures = ", ".join(f"{count} {status}" for status, count in cell["head"]["failures"].items())
        return name, str(cell["metric"]), "", failures
    interval = ""
    if verdict["low"] is not None and verdict["high"] is not None:
        interval = f"{output.percent(verdict['low'])} to {output.percent(verdict['high'])}"
    return name, str(cell["metric"]), output.percent(verdict["ratio"]), interval
