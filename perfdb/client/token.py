"""`perfdb token`: make, list and revoke tokens of a project. Needs a token with the scope admin."""

from __future__ import annotations

import argparse
import json

from perfdb.client.output import complain, table
from perfdb.client.settings import add_server_options, server_of


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("token", help="make, list and revoke tokens of a project")
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    make = actions.add_parser("make", help="make a token; its secret is printed once")
    make.add_argument("name")
    make.add_argument(
        "--scope",
        action="append",
        choices=("read", "upload", "operate", "admin"),
        help="default: read, upload",
    )
    make.add_argument("--days", type=int, default=365, help="until it expires (default: %(default)s)")
    make.add_argument("--fork", action="store_true", help="may upload to pull requests only")
    make.set_defaults(run=run, action="make")
    list_ = actions.add_parser("list", help="list the tokens of the project")
    list_.set_defaults(run=run, action="list")
    revoke = actions.add_parser("revoke", help="revoke a token by its number")
    revoke.add_argument("id", type=int)
    revoke.set_defaults(run=run, action="revoke")
    for each in (make, list_, revoke):
        add_server_options(each)


def run(args: argparse.Namespace) -> int:
    from perfdb.client.http import Api, Refused, ServerAway

    api = Api(server_of(args))
    try:
        if args.action == "make":
            body = {
                "name": args.name,
                "scopes": args.scope or ["read", "upload"],
                "days": args.days,
                "fork": args.fork,
            }
            print(api.post(api.project_path("tokens"), json.dumps(body).encode())["secret"])
        elif args.action == "list":
            rows = [
                (
                    str(row["id"]),
                    row["prefix"],
                    row["name"],
                    ",".join(row["scopes"]),
                    "revoked" if row["revoked_at"] else f"last used {row['used_at'] or 'never'}",
                )
                for row in api.pages(api.project_path("tokens"), "tokens")
            ]
            print("\n".join(table(rows)))
        else:
            api.delete(api.project_path(f"tokens/{args.id}"))
    except (Refused, ServerAway) as error:
        complain(str(error))
        return 2
    return 0
