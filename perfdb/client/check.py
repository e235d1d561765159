"""`perfdb check`: does the manifest fit?"""

from __future__ import annotations

import argparse
from pathlib import Path

from perfdb.client.output import complain, table


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("check", help="check perfdb.toml and list its cases")
    parser.add_argument("path", nargs="?", default=".", help="the manifest or its folder (default: here)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """0: it fits; 2: it does not, the message names line and key."""
    from perfdb.manifest import FILE_NAME, ManifestError, load

    path = Path(args.path)
    try:
        manifest = load(path / FILE_NAME if path.is_dir() else path)
    except ManifestError as error:
        complain(str(error))
        return 2
    cases = manifest.cases()
    rows = [
        (
            case.spec.benchmark,
            case.spec.tier,
            ", ".join(f"{key}={value}" for key, value in case.spec.params.items()) or "-",
            f"{case.launches} launches",
            ", ".join(metric.name for metric in case.spec.metrics),
        )
        for case in cases
    ]
    print(f"{manifest.project.name}: {len(manifest.benchmarks)} benchmarks, {len(cases)} cases")
    print("\n".join(f"  {line}" for line in table(rows)))
    return 0
