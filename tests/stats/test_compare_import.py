from __future__ import annotations

import subprocess
import sys

import pytest

import perfdb.stats


def test_importing_the_package_imports_no_numpy() -> None:
    code = "import sys, perfdb.stats; sys.exit('numpy' in sys.modules or 'django' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_public_name_resolves() -> None:
    for name in dir(perfdb.stats):
        assert getattr(perfdb.stats, name) is not None or name.startswith("_")
    assert callable(perfdb.stats.compare)
    assert callable(perfdb.stats.find_changes)
    assert callable(perfdb.stats.calibrate)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'comparee'"):
        getattr(perfdb.stats, "comparee")  # noqa: B009  # a name the type checker must not see
