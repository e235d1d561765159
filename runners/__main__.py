"""`python -P -m runners < request.json > result.json`: one launch.

Exit status 0 when a result was written (whatever the statuses in it), 2 when the request is wrong (one line
on standard error, nothing on standard output), 143 when stopped by SIGTERM.
"""

from __future__ import annotations

import signal
import sys
from types import FrameType

from .launch import measure
from .process import adopt_orphans, kill_orphans
from .result import LaunchRequest, WireError


def main() -> int:
    signal.signal(signal.SIGTERM, _terminate)
    adopt_orphans()
    try:
        result = measure(LaunchRequest.from_json(sys.stdin.buffer.read()))
        text = result.to_json()
    except WireError as error:
        print(error, file=sys.stderr)
        return 2
    finally:
        kill_orphans()
    sys.stdout.write(text + "\n")
    return 0


def _terminate(number: int, frame: FrameType | None) -> None:
    """Unwind through every `finally`, so that no benchmark outlives its runner."""
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
