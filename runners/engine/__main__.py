"""`python <this folder>` (under any interpreter that has torch and aiohttp) or `python -m runners.engine`."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path

ALIAS = "perfdb_engine"


def _load_under_alias() -> None:
    """Import this folder as package `perfdb_engine`, and put the working folder first on the import path.

    The tracked repository's modules come from the working folder and may have any name, `model` or `server` or
    `runners` among them: neither this folder nor its parents may stand on the path.
    """
    here = Path(__file__).resolve().parent
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != here]
    sys.path.insert(0, os.getcwd())
    spec = importlib.util.spec_from_file_location(
        ALIAS, here / "__init__.py", submodule_search_locations=[str(here)]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"{here} is no package")
    package = importlib.util.module_from_spec(spec)
    sys.modules[ALIAS] = package
    spec.loader.exec_module(package)


if __name__ == "__main__":
    if not __package__:
        _load_under_alias()
    sys.exit(importlib.import_module(f"{__package__ or ALIAS}.cli").main())
