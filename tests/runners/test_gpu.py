"""The CUDA path on a real GPU: every cheat caught, honest work timed by graph, faults as statuses."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from runners.result import MetricSpec

from . import adversaries
from .launching import TIME, case, launch, request

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not adversaries.torch.cuda.is_available(), reason="no CUDA device"),
]

OPTIONS = {"inputs": "adversaries:inputs", "reference": "adversaries:reference", "work": "adversaries:work"}
SHAPE = {"rows": 64, "cols": 1001}
# Remembering results costs nothing in a graph, which replays kernels and no Python: nothing to catch there.
# Threads fill their output late on the host only.
CPU_ONLY = {"kept_by_content", "filled_later"}
NAMES = [
    function.__name__
    for function in adversaries.CHEATS + adversaries.GPU_CHEATS
    if function.__name__ not in CPU_ONLY
]
HONEST_SHAPES = [(64, 1001), (1, 1), (3, 17), (8192, 4096)]
METRICS = (
    TIME,
    MetricSpec("single_call", "us", lower_is_better=True),
    MetricSpec("host_overhead", "us", lower_is_better=True),
    MetricSpec("bandwidth", "GB/s", lower_is_better=False),
    MetricSpec("roofline", "ratio", lower_is_better=False),
    MetricSpec("peak_memory", "MiB", lower_is_better=True),
)


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    root = tmp_path_factory.mktemp("adversaries").resolve()
    shutil.copy(Path(adversaries.__file__), root / "adversaries.py")
    shape: dict[str, Any] = {"params": SHAPE, "options": OPTIONS}
    cases = [case(name, f"adversaries:{name}", timeout_s=60, **shape) for name in NAMES]
    cases += [
        case(
            f"honest {rows}x{cols}",
            "adversaries:honest",
            params={"rows": rows, "cols": cols},
            options=OPTIONS,
            metrics=METRICS,
        )
        for rows, cols in HONEST_SHAPES
    ]
    cases += [
        case("waits_for_the_host", "adversaries:waits_for_the_host", **shape),
        case("out_of_memory", "adversaries:out_of_memory", **shape),
        case("limited", "adversaries:honest", memory_limit_bytes=2**20, **shape),
        case("endless", "adversaries:endless", timeout_s=3, **shape),
        case("out_of_bounds", "adversaries:out_of_bounds", **shape),
    ]
    return launch(request(root, *cases, device="cuda", budget_s=0.3, sentinel=True), locks=root / "locks")


@pytest.mark.parametrize("name", NAMES)
def test_is_caught(outcome: dict[str, Any], name: str) -> None:
    run = outcome["by_name"][name]
    assert run["status"] in ("incorrect", "invalid"), run["reason"]
    assert run["reason"]


@pytest.mark.parametrize(("rows", "cols"), HONEST_SHAPES)
def test_honest_work_is_timed_by_graph_with_its_clock(outcome: dict[str, Any], rows: int, cols: int) -> None:
    run = outcome["by_name"][f"honest {rows}x{cols}"]
    assert (run["status"], run["reason"]) == ("ok", "")
    by_metric = {item["metric"]["name"]: item for item in run["measurements"]}
    assert set(by_metric) == {metric.name for metric in METRICS}
    assert len(by_metric["time"]["samples"]) == len(by_metric["time"]["mhz"])
    assert all(100 < mhz < 4000 for mhz in by_metric["time"]["mhz"])


def test_what_cannot_be_captured_says_so(outcome: dict[str, Any]) -> None:
    run = outcome["by_name"]["waits_for_the_host"]
    assert run["status"] == "ok", run["reason"]
    assert "cannot be captured in a CUDA graph" in run["reason"]


@pytest.mark.parametrize(
    ("name", "status"),
    [("out_of_memory", "oom"), ("limited", "oom"), ("endless", "timeout"), ("out_of_bounds", "error")],
)
def test_faults_are_statuses(outcome: dict[str, Any], name: str, status: str) -> None:
    run = outcome["by_name"][name]
    assert run["status"] == status, run["reason"]
    assert run["reason"]


def test_the_gpu_and_its_health_are_recorded(outcome: dict[str, Any]) -> None:
    environment, health = outcome["environment"], outcome["health"]
    assert environment["klass"]["device"] == "cuda"
    assert environment["klass"]["gpu_model"]
    assert environment["klass"]["power_limit_w"] > 0
    assert environment["info"]["ceilings"]["copy_bytes_per_s"] > 1e11
    assert set(health["sentinel"]) == {"before", "after"}
    assert max(value for value in health["during"]["readings"]["sm_mhz"] if value) > 0
    assert health["violations"] == []
