"""Script that a measuring child starts with: load the harness under an alias, then hand over.

The tracked repository may have packages named `runners` or `kernels` of its own, and they must win inside
its process. So the harness is imported from its files as `_perfdb_runners` (all its imports are relative),
and only the project's root is added to the import path.
Run as `python -P bootstrap.py MODULE ARGUMENT...`: calls `MODULE.main(ARGUMENT...)` of the harness.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ALIAS = "_perfdb_runners"


def load_package(alias: str, folder: Path) -> ModuleType:
    """Import the package in `folder` under the name `alias`, without touching sys.path."""
    spec = importlib.util.spec_from_file_location(
        alias, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"no package in {folder}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[alias] = module
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    load_package(ALIAS, Path(__file__).resolve().parent)
    name, *rest = sys.argv[1:]
    del sys.argv[1:]
    sys.exit(importlib.import_module(f"{ALIAS}.{name}").main(rest))
