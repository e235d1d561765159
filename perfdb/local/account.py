"""The operating-system account that the database server runs as when perfdb itself runs as root.

PostgreSQL refuses to run as root. An ordinary user's server runs as that user; root's runs as `perfdb`, a
system account made on first use, or as `nobody` where no account can be made.
"""

import os
import pwd
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

ACCOUNT_NAME = "perfdb"


@dataclass(frozen=True)
class Account:
    """A user to become; ids as in the password database."""

    name: str
    uid: int
    gid: int

    def can_enter(self, folder: Path) -> bool:
        """Whether this user may pass through every folder above `folder`, and `folder` itself if it is there."""
        resolved = folder.resolve()
        for step in (resolved, *resolved.parents):
            if not step.exists():
                continue
            status = step.stat()
            bit = 0o100 if status.st_uid == self.uid else 0o010 if status.st_gid == self.gid else 0o001
            if not status.st_mode & bit:
                return False
        return True


def server_account() -> Account | None:
    """The account to become for servers that refuse root; None when we are not root."""
    if os.geteuid() != 0:
        return None
    return _lookup(ACCOUNT_NAME) or _create(ACCOUNT_NAME) or _lookup("nobody")


def _lookup(name: str) -> Account | None:
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    return Account(name=entry.pw_name, uid=entry.pw_uid, gid=entry.pw_gid)


def _create(name: str) -> Account | None:
    useradd = shutil.which("useradd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if useradd is None:
        return None
    command = [useradd, "--system", "--user-group", "--no-create-home", "--shell", "/usr/sbin/nologin", name]
    # Another perfdb may make the same account at this moment; what counts is whether it is there afterwards.
    subprocess.run(command, check=False, capture_output=True)
    return _lookup(name)
