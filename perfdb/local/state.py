"""Where one installation keeps what it must not lose: database, logs, secret key, mail of the demo.

Every path and both server addresses follow from the folder alone, so that any process started in the same
checkout finds the running servers without being told.
"""

import hashlib
import os
import secrets
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

from perfdb.local.account import Account

FOLDER_VARIABLE = "PERFDB_STATE"
RELOCATED_ROOT = Path("/var/lib/perfdb")
# sun_path holds 108 bytes with its NUL; the longest name below a socket folder is ".s.PGSQL.5432.lock".
_SOCKET_FOLDER_MAX_BYTES = 107 - len("/.s.PGSQL.5432.lock")


class StateError(Exception):
    """The state folder cannot be used; the message says which path and what to do."""


@dataclass(frozen=True)
class StateFolder:
    """Paths below one absolute folder, which may be a link. Constructing it touches no disk.

    The link is not followed in any path here: a process that read its settings before the first `up` made
    the folder must find the sockets too.
    """

    path: Path

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def run(self) -> Path:
        return self.path / "run"

    @property
    def lock_file(self) -> Path:
        return self.run / "supervisor.lock"

    @property
    def status_file(self) -> Path:
        return self.run / "status.json"

    @property
    def static(self) -> Path:
        return self.path / "static"

    @property
    def inbox(self) -> Path:
        return self.path / "inbox"

    @property
    def secret_key_file(self) -> Path:
        return self.path / "secret_key"

    @property
    def postgres(self) -> Path:
        return self.path / "postgres"

    @property
    def valkey(self) -> Path:
        return self.path / "valkey"

    @property
    def postgres_socket_folder(self) -> Path:
        return self._socket_folder(self.postgres / "socket")

    @property
    def valkey_socket(self) -> Path:
        return self._socket_folder(self.run) / "valkey.sock"

    @property
    def database_url(self) -> str:
        return f"postgresql:///perfdb?host={self.postgres_socket_folder}&user=perfdb"

    @property
    def redis_url(self) -> str:
        return f"unix://{self.valkey_socket}?db=0"

    def _socket_folder(self, preferred: Path) -> Path:
        longest = max(len(os.fsencode(preferred)), len(os.fsencode(preferred.resolve())))
        if longest <= _SOCKET_FOLDER_MAX_BYTES:
            return preferred
        name = hashlib.sha256(os.fsencode(preferred)).hexdigest()[:16]
        return Path(f"/tmp/perfdb-{name}")  # noqa: S108  (own_private_folder refuses a planted one)

    def secret_key(self) -> str | None:
        """The installation's secret key, or None before the first `up` made one."""
        try:
            return self.secret_key_file.read_text(encoding="ascii").strip() or None
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return None


def locate(*, checkout: Path) -> StateFolder:
    """The state folder of this checkout: `PERFDB_STATE` if set, else `.perfdb`."""
    named = Path(os.environ.get(FOLDER_VARIABLE) or checkout / ".perfdb").absolute()
    return StateFolder(named.parent.resolve() / named.name)


def prepare(folder: StateFolder, *, account: Account | None) -> None:
    """Make the folders; `account`, where given, will be able to enter and own the database's.

    A folder that the account cannot enter (a checkout under root's home) is made under /var/lib/perfdb
    instead and linked from where it was asked for.

    Raises:
        StateError: the folder cannot be made or written, belongs to another user, or holds data where
            the account cannot enter.
    """
    try:
        _relocate_if_closed(folder.path, account)
        own_private_folder(folder.path.resolve(), mode=0o711 if account else 0o700)
        for child in (folder.logs, folder.run, folder.valkey, folder.valkey_socket.parent):
            own_private_folder(child)
        for child in (folder.postgres, folder.postgres_socket_folder):
            own_private_folder(child, owner=account)
    except OSError as error:
        where = f"{error.filename}: " if error.filename not in {None, str(folder.path)} else ""
        raise StateError(
            f"cannot keep data in {folder.path}: {where}{error.strerror}. Another folder can be named in "
            f"{FOLDER_VARIABLE}."
        ) from error


def own_private_folder(path: Path, *, mode: int = 0o700, owner: Account | None = None) -> None:
    """Make `path` a directory of `owner` (default: us) that others cannot read; refuse anybody else's."""
    uid = owner.uid if owner else os.geteuid()
    if not path.exists():
        path.mkdir(parents=True)
        if owner:
            os.chown(path, owner.uid, owner.gid)
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise StateError(f"{path} is not a directory")
    if status.st_uid != uid:
        raise StateError(
            f"{path} belongs to user id {status.st_uid}, not {uid}. Run perfdb as that user, or name "
            f"another folder in {FOLDER_VARIABLE}."
        )
    if stat.S_IMODE(status.st_mode) != mode:
        path.chmod(mode)


def make_secret_key(folder: StateFolder) -> None:
    """Make the secret key unless there is one. For the holder of the lock only."""
    if folder.secret_key() is not None:
        return
    handle, name = tempfile.mkstemp(dir=folder.path, prefix=".secret_key-")
    with os.fdopen(handle, "w", encoding="ascii") as stream:
        stream.write(secrets.token_urlsafe(50))
    Path(name).rename(folder.secret_key_file)


def _relocate_if_closed(requested: Path, account: Account | None) -> None:
    if account is None or account.can_enter(requested):
        return
    if requested.is_symlink() or (requested.exists() and any(requested.iterdir())):
        raise StateError(
            f"{requested} holds data, but the database's account {account.name!r} cannot enter it. Open the "
            f"folders above it (chmod o+x), or name another folder in {FOLDER_VARIABLE}."
        )
    requested.parent.mkdir(parents=True, exist_ok=True)  # before anything is left elsewhere
    RELOCATED_ROOT.mkdir(parents=True, exist_ok=True, mode=0o711)
    # A fresh name each time: data left by an earlier checkout at the same path must not be adopted.
    moved = Path(tempfile.mkdtemp(prefix=f"{requested.parent.name[:20]}-", dir=RELOCATED_ROOT))
    moved.chmod(0o711)
    if requested.exists():
        requested.rmdir()
    requested.symlink_to(moved)
