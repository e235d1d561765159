"""The services of perfdb: which processes make up a running installation."""

import os
import signal
import sys
from pathlib import Path

from perfdb.local.account import Account
from perfdb.local.cores import MEASURE_CPUS_VARIABLE, CorePlan, format_cpu_list
from perfdb.local.postgres import PostgresServer
from perfdb.local.service import Service, StopStep
from perfdb.local.valkey import ValkeyServer

CELERY_APP = "perfdb.config.celery:app"
_WEB_GRACE_S = 2
# The longest ways down, 5 s for these and 3 s for the servers after them, keep a stop below 10 s.
_CELERY_STOP = (StopStep(signal.SIGTERM, 3.0), StopStep(signal.SIGQUIT, 2.0))
_WEB_STOP = (StopStep(signal.SIGTERM, _WEB_GRACE_S + 1.0),)


def postgres_service(server: PostgresServer, *, account: Account | None, cores: CorePlan) -> Service:
    """SIGINT is PostgreSQL's fast shutdown, SIGQUIT its immediate one."""
    return Service(
        name="postgres",
        command=tuple(server.command()),
        stop_steps=(StopStep(signal.SIGINT, 2.0), StopStep(signal.SIGQUIT, 1.0)),
        death_signal=signal.SIGINT,
        account=account,
        cpus=cores.services,
    )


def valkey_service(server: ValkeyServer, *, cores: CorePlan) -> Service:
    """The broker."""
    return Service(
        name="valkey",
        command=tuple(server.command()),
        stop_steps=(StopStep(signal.SIGTERM, 1.0),),
        death_signal=signal.SIGTERM,
        cpus=cores.services,
    )


def manage_service(
    *arguments: str, checkout: Path, environment: dict[str, str], cores: CorePlan, name: str | None = None
) -> Service:
    """One `manage.py` command that runs to its end."""
    return Service(
        name=name or arguments[0],
        command=(sys.executable, str(checkout / "manage.py"), *arguments),
        stop_steps=(StopStep(signal.SIGTERM, 1.0),),
        death_signal=signal.SIGTERM,
        environment=environment,
        cpus=cores.services,
    )


def application_services(
    *, environment: dict[str, str], cores: CorePlan, run: Path, listener_fd: int
) -> list[Service]:
    """Web, the two workers and beat. The benchmark worker has the measuring cores to itself."""
    web = Service(
        name="web",
        command=(
            *(sys.executable, "-m", "gunicorn", "perfdb.config.wsgi", "--bind", "fd://3"),
            *("--workers", "2", "--threads", "4", "--graceful-timeout", str(_WEB_GRACE_S)),
            *("--access-logfile", "-", "--no-control-socket"),
        ),
        stop_steps=_WEB_STOP,
        death_signal=signal.SIGTERM,
        environment=environment,
        cpus=cores.services,
        socket_fd=listener_fd,
    )
    return [
        web,
        _worker(
            "measure",
            queue=measure_queue(os.environ.get("PERFDB_POOL", "default")),
            concurrency=1,
            environment={**environment, MEASURE_CPUS_VARIABLE: format_cpu_list(cores.measuring)},
            cpus=cores.measuring,
        ),
        _worker("analysis", queue="analysis", concurrency=2, environment=environment, cpus=cores.services),
        Service(
            name="beat",
            command=(
                *(sys.executable, "-m", "celery", "-A", CELERY_APP, "beat", "--loglevel", "INFO"),
                *("--schedule", str(run / "beat-schedule"), "--pidfile", ""),
            ),
            stop_steps=_CELERY_STOP,
            death_signal=signal.SIGTERM,
            environment=environment,
            cpus=cores.services,
        ),
    ]


def measure_queue(pool: str) -> str:
    """The queue of a pool's workers; spelled as in `perfdb.tasks`, which needs Django and so is not asked."""
    return "measure" if pool == "default" else f"measure.{pool}"


def _worker(
    name: str, *, queue: str, concurrency: int, environment: dict[str, str], cpus: frozenset[int]
) -> Service:
    return Service(
        name=f"worker-{name}",
        command=(
            *(sys.executable, "-m", "celery", "-A", CELERY_APP, "worker", "--queues", queue),
            *("--concurrency", str(concurrency), "--hostname", f"{name}@%h", "--loglevel", "INFO"),
            *("--without-gossip", "--without-mingle"),
        ),
        stop_steps=_CELERY_STOP,
        # Not its cold shutdown, which can hang when the broker died at the same moment. Its pool follows it.
        death_signal=signal.SIGKILL,
        environment=environment,
        cpus=cpus,
    )
