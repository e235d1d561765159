"""Asking the kernel to end this process when its parent dies."""

import ctypes
import signal

_PR_SET_PDEATHSIG = 1


def die_with_parent(number: signal.Signals) -> None:
    """Have `number` sent to this process when its parent (more exactly the thread that forked it) ends.

    Raises:
        OSError: the kernel refused.
    """
    if ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0) != 0:
        raise OSError("prctl(PR_SET_PDEATHSIG) failed")
