"""Become the account and the signal contract of one service, then exec it.

Run as a script by path, with nothing but the standard library: it must start in milliseconds and must not
need the package to be importable for the account it becomes. An exec'ed launcher, rather than `preexec_fn`,
because the caller may have threads, and because the death signal is cleared by a change of user and so
has to be set after it.
"""

import argparse
import ctypes
import os
import sys

_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Parse, drop privileges, ask the kernel for a signal when the parent dies, exec the rest."""
    parser = argparse.ArgumentParser(prog="launch")
    parser.add_argument("--parent", type=int, required=True, help="process id that must still be our parent")
    parser.add_argument("--death-signal", type=int, required=True, help="sent to us when the parent dies")
    parser.add_argument("--uid", type=int)
    parser.add_argument("--gid", type=int)
    parser.add_argument("--cpus", default="", help="comma-separated cores to run on; empty leaves them as is")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args(arguments)

    if options.cpus:
        os.sched_setaffinity(0, {int(cpu) for cpu in options.cpus.split(",")})
    if options.uid is not None:
        os.setgroups([])
        os.setgid(options.gid)
        os.setuid(options.uid)
        os.chdir("/")  # where we were may be closed to this user
    if ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, options.death_signal, 0, 0, 0) != 0:
        sys.exit("launch: prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != options.parent:
        sys.exit("launch: the process that started this service is gone already")
    try:
        os.execv(options.command[0], options.command)  # noqa: S606  (no shell is the point)
    except OSError as error:
        sys.exit(f"launch: {options.command[0]}: {error.strerror}")


if __name__ == "__main__":
    main(sys.argv[1:])
