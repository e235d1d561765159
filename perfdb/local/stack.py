"""The order in which an installation comes up and goes down, inside the supervisor process.

No Django here: the supervisor must go on, and say what is wrong, when the application does not import.
"""

import os
import socket
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from perfdb.local.account import Account
from perfdb.local.cores import current_plan
from perfdb.local.orphans import become_subreaper
from perfdb.local.postgres import PostgresError, PostgresServer
from perfdb.local.service import Service
from perfdb.local.services import application_services, manage_service, postgres_service, valkey_service
from perfdb.local.state import FOLDER_VARIABLE, StateFolder
from perfdb.local.status import ServiceStatus, StackStatus, write_status
from perfdb.local.supervisor import Child, ServiceFailedError, Supervisor, tail
from perfdb.local.valkey import ValkeyError, ValkeyServer

CHECKOUT = Path(__file__).resolve().parents[2]
_LEFTOVER_TIMEOUT_S = 10.0
_READY_TIMEOUT_S = 60.0
_READY_CHECK_EVERY_S = 0.1
_RESTARTS_BEFORE_GIVING_UP = 3
_SERVERS = frozenset({"postgres", "valkey"})


class Stack:
    """One run of one installation. `listener` is the web address, already listening."""

    def __init__(
        self, *, state: StateFolder, account: Account | None, host: str, listener: socket.socket
    ) -> None:
        self._state = state
        self._account = account
        self._listener = listener
        self._cores = current_plan()
        self._phase = "starting"
        port = listener.getsockname()[1]
        self._local_address = f"http://{_url_host(host)}:{port}"
        self.address = os.environ.get("PERFDB_BASE_URL") or self._local_address
        self._environment = {
            "DJANGO_SETTINGS_MODULE": "perfdb.config.settings",
            FOLDER_VARIABLE: str(state.path),
            "PERFDB_BASE_URL": self.address,
            "PERFDB_STATIC_ROOT": str(state.static),
            "PYTHONUNBUFFERED": "1",
        }
        self._supervisor = Supervisor(logs=state.logs, on_change=self._publish)

    def run(self) -> None:
        """Start everything, keep it running, and stop everything on the way out, however that comes.

        Raises:
            StopRequested: by a signal; the only way out of a stack that came up.
            ServiceFailedError, PostgresError, ValkeyError: something did not come up.
        """
        become_subreaper()
        self._publish([])
        try:
            self._start_servers()
            self._prepare_application()
            self._start_application()
            self._phase = "ready"
            self._publish(self._supervisor.children)
            _say(f"running at {self.address} (pid {os.getpid()}); logs in {self._state.logs}")
            while True:
                self._supervisor.step(timeout_s=3600.0)
        finally:
            self._phase = "stopping"
            # The application first: it still writes to the servers while it ends.
            names = {child.service.name for child in self._supervisor.children}
            self._supervisor.stop(names - _SERVERS)
            self._supervisor.stop(names & _SERVERS)
            _say("stopped")

    def _start_servers(self) -> None:
        if not os.environ.get("REDIS_URL"):
            valkey = ValkeyServer(folder=self._state.valkey, socket=self._state.valkey_socket)
            self._supervisor.start(valkey_service(valkey, cores=self._cores))
            self._await("valkey", lambda: _answers(valkey))
        if not os.environ.get("DATABASE_URL"):
            postgres = PostgresServer(
                folder=self._state.postgres.resolve(),
                socket_folder=self._state.postgres_socket_folder.resolve(),
                account=self._account,
            )
            postgres.initialise()
            postgres.clear_leftovers(timeout_s=_LEFTOVER_TIMEOUT_S)
            self._supervisor.start(postgres_service(postgres, account=self._account, cores=self._cores))
            self._await("postgres", lambda: _has_database(postgres))

    def _prepare_application(self) -> None:
        for arguments in (("migrate", "--noinput"), ("collectstatic", "--noinput")):
            self._supervisor.run_once(self._manage(*arguments))
        # Shown once, on the terminal, and kept in no log.
        self._supervisor.run_once(self._manage("bootstrap"), to_terminal=True)

    def _start_application(self) -> None:
        for service in application_services(
            environment=self._environment,
            cores=self._cores,
            run=self._state.run,
            listener_fd=self._listener.fileno(),
        ):
            self._supervisor.start(service)
        self._await("web", lambda: _is_healthy(f"{self._local_address}/healthz"))

    def _manage(self, *arguments: str) -> Service:
        return manage_service(*arguments, checkout=CHECKOUT, environment=self._environment, cores=self._cores)

    def _await(self, name: str, ready: Callable[[], bool]) -> None:
        """Look after the children until `ready`; give up when the one named keeps dying or time is over."""
        child = next(child for child in self._supervisor.children if child.service.name == name)
        attempts = int(_READY_TIMEOUT_S / _READY_CHECK_EVERY_S)
        for _ in range(attempts):
            self._supervisor.step(timeout_s=_READY_CHECK_EVERY_S)
            if child.restarts >= _RESTARTS_BEFORE_GIVING_UP:
                raise ServiceFailedError(f"{name} keeps ending:\n{tail(child.log)}")
            if child.pid is not None and ready():
                return
        raise ServiceFailedError(f"{name} does not answer; the end of {child.log}:\n{tail(child.log)}")

    def _publish(self, children: list[Child]) -> None:
        services = tuple(
            ServiceStatus(name=child.service.name, pid=child.pid, restarts=child.restarts)
            for child in children
        )
        write_status(
            self._state,
            StackStatus(pid=os.getpid(), phase=self._phase, address=self.address, services=services),
        )


def _say(text: str) -> None:
    print(f"perfdb: {text}", flush=True)


def _url_host(host: str) -> str:
    if host in {"0.0.0.0", "::"}:  # noqa: S104  (compared, not bound)
        return "localhost"
    return f"[{host}]" if ":" in host else host


def _answers(valkey: ValkeyServer) -> bool:
    try:
        valkey.wait_ready(timeout_s=0)
    except ValkeyError:
        return False
    return True


def _has_database(postgres: PostgresServer) -> bool:
    try:
        postgres.ensure_database(timeout_s=0)
    except PostgresError:
        return False
    return True


def _is_healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:  # noqa: S310  (our own address)
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False
