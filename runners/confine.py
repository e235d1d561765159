"""Script, run as `python -I -S confine.py LIMITS ARGV...`: limit this process, then become ARGV.

A script of its own instead of `preexec_fn`, which is unsafe in a parent with threads. LIMITS is JSON:
{"cpus": [int]|null, "memory_bytes": int|null, "started_fd": int|null}. The limit is RLIMIT_DATA (private
writable memory): an allocation beyond it fails inside the process, where it can be reported; RLIMIT_AS would
also count the address space that torch and CUDA only reserve.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import struct
import sys
import time

PR_SET_PDEATHSIG = 1
EXIT_NOT_EXECUTABLE = 126
EXIT_NOT_FOUND = 127


def main(arguments: list[str]) -> int:
    """Returns only when ARGV could not be started (126 or 127, as a shell does)."""
    limits, argv = json.loads(arguments[0]), arguments[1:]
    # The runner's death must not leave a benchmark running on a machine that looks free.
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    try:
        if limits["cpus"]:
            os.sched_setaffinity(0, limits["cpus"])
    except OSError as error:
        print(f"cannot pin to cores {limits['cpus']}: {error.strerror}", file=sys.stderr)
        return EXIT_NOT_EXECUTABLE
    if limits["memory_bytes"] is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (limits["memory_bytes"],) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if limits["started_fd"] is not None:
        # The start of the program, not of this script: CLOCK_MONOTONIC is the same in every process.
        os.set_inheritable(limits["started_fd"], False)  # noqa: FBT003  (positional-only)
        os.write(limits["started_fd"], struct.pack("=q", time.monotonic_ns()))
    try:
        os.execvp(argv[0], argv)  # noqa: S606  (an argument list, never a shell)
    except FileNotFoundError:
        print(f"{argv[0]}: no such program", file=sys.stderr)
        return EXIT_NOT_FOUND
    except OSError as error:
        print(f"{argv[0]}: {error.strerror}", file=sys.stderr)
        return EXIT_NOT_EXECUTABLE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
