"""Command lines that go through `launch.py`."""

import os
import signal
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from perfdb.local.account import Account
from perfdb.local.cores import format_cpu_list


def as_account(
    command: Sequence[str],
    *,
    account: Account | None,
    death_signal: signal.Signals,
    cpus: Iterable[int] = (),
) -> list[str]:
    """`command`, started as `account` on `cpus`, to receive `death_signal` when the calling process dies.

    More exactly when the calling thread ends: the kernel ties the signal to the thread that forks.
    """
    identity = ["--uid", str(account.uid), "--gid", str(account.gid)] if account else []
    return [
        *(sys.executable, "-I", "-S", str(Path(__file__).with_name("launch.py"))),
        *("--parent", str(os.getpid()), "--death-signal", str(int(death_signal))),
        *identity,
        *("--cpus", format_cpu_list(cpus)),
        *("--", *command),
    ]
