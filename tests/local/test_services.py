"""The processes of an installation agree with the application that runs in them."""

from pathlib import Path

import pytest

from perfdb import tasks
from perfdb.local.cores import CorePlan
from perfdb.local.services import application_services, measure_queue

CORES = CorePlan(services=frozenset({0}), measuring=frozenset({1}))


@pytest.mark.parametrize("pool", ["default", "h200"])
def test_the_benchmark_worker_serves_the_queue_of_its_pool(
    pool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert measure_queue(pool) == tasks.measure_queue(pool)
    monkeypatch.setenv("PERFDB_POOL", pool)
    services = application_services(environment={}, cores=CORES, run=Path("/run"), listener_fd=9)
    worker = next(service for service in services if service.name == "worker-measure")
    assert worker.command[worker.command.index("--queues") + 1] == tasks.measure_queue(pool)
    assert worker.command[worker.command.index("--concurrency") + 1] == "1"


def test_a_stop_of_everything_fits_into_ten_seconds() -> None:
    services = application_services(environment={}, cores=CORES, run=Path("/run"), listener_fd=9)
    slowest_s = max(sum(step.wait_s for step in service.stop_steps) for service in services)
    assert slowest_s + 3 + 1 < 10, "with 3 s for the servers after them and 1 s for what is left behind"
