"""The client alone: how much it installs, and how long `perfdb --help` takes.

    python -m benchmarks.client

Installs this checkout without extras into a virtual environment of its own, and counts what was added to it.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]


def size(folder: Path) -> int:
    """Bytes of all files below, compiled ones included."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="perfdb-client-") as name:
        home = Path(name) / "venv"
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        before = size(home)
        install = [str(home / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", str(ROOT)]
        subprocess.run(install, check=True)
        added = size(home) - before
        times = []
        for _ in range(15):
            start = time.perf_counter()
            subprocess.run(
                [str(home / "bin" / "perfdb"), "--help"], check=True, capture_output=True, cwd=name
            )
            times.append(time.perf_counter() - start)
        bare = []
        for _ in range(15):
            start = time.perf_counter()
            subprocess.run([str(home / "bin" / "python"), "-c", "pass"], check=True)
            bare.append(time.perf_counter() - start)
    print(f"installed: {added / 1e6:.1f} MB (at most 15)")
    print(f"perfdb --help: median {1e3 * statistics.median(times):.0f} ms, fastest {1e3 * min(times):.0f} ms")
    print(f"an interpreter that does nothing: median {1e3 * statistics.median(bare):.0f} ms")


if __name__ == "__main__":
    main()
