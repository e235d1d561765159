"""Stands for a real build: every module must compile, and a version stamp is written."""

import compileall
import pathlib
import sys

FOLDERS = ("tensorlab", "tinylm", "bench")


def main() -> int:
    if not all(compileall.compile_dir(folder, quiet=1, force=True) for folder in FOLDERS):
        return 1
    pathlib.Path("tensorlab/_built.py").write_text("BUILT = True\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
