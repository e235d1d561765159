"""A launch through the runner's front door, with a project that does everything wrong that it can."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from runners.result import MetricSpec

from .launching import REPOSITORY, case, launch, request, start

PROJECT = {
    "runners.py": "WHO = 'the project'\n",
    "kernels.py": "WHO = 'the project'\n",
    "bench.py": """
import ctypes, os, sys, time
import kernels, runners

def add(n):
    return sum(range(n))

def add_reference(n):
    return n * (n - 1) // 2

def off_by_one(n):
    return n * (n - 1) // 2 + 1

def whose(n):
    return runners.WHO + kernels.WHO

def whose_reference(n):
    return 'the project' * 2

def where(n):
    assert os.getcwd() == os.environ['EXPECTED_ROOT'], os.getcwd()
    assert 'SECRET_TOKEN' not in os.environ
    assert os.environ['ADDED'] == 'yes'
    print('looked around')
    return n

def raises(n):
    print('before the fall')
    raise ValueError('no good')

def crashes(n):
    print('about to crash')
    sys.stdout.flush()
    ctypes.string_at(0)

def leaves(n):
    os._exit(7)

def exits(n):
    sys.exit(0)

def endless(n):
    print('still going')
    while True:
        pass

def eats(n):
    block = bytearray(n * 2**20)
    return len(block)

def loud(n):
    print('x' * 1_000_000)
    print('the last line')
    return n

def forges(n):
    for descriptor in range(3, 64):
        try:
            os.write(descriptor, b'{"end": 0}' * 20)
        except OSError:
            pass
    return n

def daemon(n):
    pid = os.fork()
    if pid == 0:
        os.setsid()
        time.sleep(600)
    with open(os.environ['PID_FILE'], 'w') as file:
        file.write(str(pid))
    return n
""",
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("project").resolve()
    for name, text in PROJECT.items():
        (root / name).write_text(text)
    return root


@pytest.fixture(scope="module")
def locks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("locks")


@pytest.fixture(scope="module")
def outcome(project: Path, locks: Path) -> dict[str, Any]:
    """One launch with every case; the tests look at its parts."""
    n = {"params": {"n": 1000}}
    cases = (
        case("add", "bench:add", options={"reference": "bench:add_reference"}, **n),
        case("off_by_one", "bench:off_by_one", options={"reference": "bench:add_reference"}, **n),
        case("whose", "bench:whose", options={"reference": "bench:whose_reference"}, **n),
        case("where", "bench:where", **n),
        case("raises", "bench:raises", **n),
        case("crashes", "bench:crashes", **n),
        case("leaves", "bench:leaves", **n),
        case("exits", "bench:exits", **n),
        case("endless", "bench:endless", timeout_s=0.5, **n),
        case("eats", "bench:eats", params={"n": 900}, memory_limit_bytes=400 * 2**20),
        case("loud", "bench:loud", **n),
        case("forges", "bench:forges", **n),
        case("no_module", "absent:function", **n),
        case("no_name", "bench:absent", **n),
        case("wrong_params", "bench:add", params={"m": 1}),
        case("odd_unit", "bench:add", metrics=(MetricSpec("size", "widgets", lower_is_better=None),), **n),
        case("odd_option", "bench:add", options={"refrence": "bench:add"}, **n),
        case("odd_tier", "bench:add", tier="nano", **n),
    )
    return launch(
        request(project, *cases, environment={"ADDED": "yes", "EXPECTED_ROOT": str(project)}, sentinel=True),
        locks=locks,
        variables={"SECRET_TOKEN": "hush"},
    )


def test_every_case_has_one_result_in_the_order_asked(outcome: dict[str, Any]) -> None:
    names = [run["benchmark"] for run in outcome["runs"]]
    assert names[:3] == ["add", "off_by_one", "whose"]
    assert len(names) == len(set(names)) == 18
    assert sorted(outcome["order"]) == list(range(18))
    assert outcome["order"] != list(range(18))


def test_a_right_function_is_timed(outcome: dict[str, Any]) -> None:
    run = outcome["by_name"]["add"]
    assert (run["status"], run["reason"]) == ("ok", "")
    [measurement] = run["measurements"]
    assert len(measurement["samples"]) >= 3
    assert all(sample > 0 for sample in measurement["samples"])
    assert run["correctness"]["compared"] > 0


@pytest.mark.parametrize(
    ("name", "status", "reason"),
    [
        ("off_by_one", "incorrect", "output is 499501, the reference gives 499500"),
        ("raises", "error", "ValueError: no good"),
        ("crashes", "error", "the process was killed by SIGSEGV"),
        ("leaves", "error", "the process ended with exit status 7"),
        ("exits", "error", "SystemExit"),
        ("endless", "timeout", "no result within 0.5 s"),
        ("eats", "oom", "out of memory (memory limit 400 MiB): MemoryError"),
        ("forges", "error", "the harness did not write"),
        ("no_module", "error", "entry 'absent:function' does not import"),
        ("no_name", "error", "bench has no 'absent'"),
        ("wrong_params", "error", "does not accept m"),
        ("odd_unit", "error", "measures nothing in 'widgets'"),
        ("odd_option", "error", "unknown refrence"),
        ("odd_tier", "error", "tier 'nano' is unknown"),
    ],
)
def test_what_goes_wrong_is_a_status_with_a_reason(
    outcome: dict[str, Any], name: str, status: str, reason: str
) -> None:
    run = outcome["by_name"][name]
    assert run["status"] == status
    assert reason in run["reason"]
    assert run["measurements"] == []


@pytest.mark.parametrize(
    ("name", "line"),
    [("raises", "before the fall"), ("crashes", "about to crash"), ("endless", "still going")],
)
def test_the_last_lines_of_a_failed_case_are_kept(outcome: dict[str, Any], name: str, line: str) -> None:
    assert line in outcome["by_name"][name]["log"]


def test_a_log_belongs_to_its_case_and_is_capped(outcome: dict[str, Any]) -> None:
    loud = outcome["by_name"]["loud"]
    assert loud["log"].rstrip().endswith("the last line")
    assert len(loud["log"]) < 40_000
    assert outcome["by_name"]["add"]["log"] == ""


def test_the_project_keeps_its_own_names_and_place(outcome: dict[str, Any]) -> None:
    assert outcome["by_name"]["whose"]["status"] == "ok"
    where = outcome["by_name"]["where"]
    assert (where["status"], where["reason"]) == ("ok", "")
    assert "looked around" in where["log"]


def test_the_place_and_its_health_are_recorded(outcome: dict[str, Any]) -> None:
    environment, health = outcome["environment"], outcome["health"]
    assert environment["klass"]["device"] == "cpu"
    assert environment["klass"]["cpu_model"]
    assert environment["klass"]["cpu_cores"] >= 1
    assert environment["boundary"]["python"] == sys.version.split()[0]
    assert environment["boundary"]["kernel"] == os.uname().release
    assert len(health["during"]["readings"]["t_s"]) > 5
    assert set(health["sentinel"]) == {"before", "after"}
    assert all(value > 0 for value in health["sentinel"]["before"].values())


def test_what_a_case_leaves_running_is_ended(project: Path, locks: Path, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    wanted = request(
        project,
        case("daemon", "bench:daemon", params={"n": 1}, timeout_s=10),
        environment={"PID_FILE": str(pid_file)},
    )
    launch(wanted, locks=locks)
    pid = int(pid_file.read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_stopping_the_runner_stops_the_benchmark(project: Path, tmp_path: Path) -> None:
    text = request(project, case("endless", "bench:endless", params={"n": 1}, timeout_s=60)).to_json()
    runner = subprocess.Popen(
        [sys.executable, "-P", "-m", "runners"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=dict(os.environ) | {"PYTHONPATH": str(REPOSITORY), "PERFDB_LOCK_DIR": str(tmp_path)},
    )
    assert runner.stdin is not None
    with runner.stdin:
        runner.stdin.write(text.encode())
    children = _wait_for_child(runner.pid)
    runner.send_signal(signal.SIGTERM)
    assert runner.wait(timeout=20) == 143
    for pid in children:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def _wait_for_child(parent: int) -> list[int]:
    """Process ids of the benchmark's children, once it runs the case."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        found = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        if any("bootstrap.py" in Path(f"/proc/{pid}/cmdline").read_text() for pid in found):
            return [int(pid) for pid in found]
        time.sleep(0.05)
    raise AssertionError("the runner started no child")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"schema": 99}, "schema 99"),
        ({"root": "relative"}, "root 'relative'"),
        ({"device": "tpu"}, "device 'tpu'"),
        ({"cpus": [4096]}, "cores [4096]"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_a_wrong_request_is_refused_in_one_line(
    project: Path, locks: Path, change: dict[str, Any], complaint: str
) -> None:
    raw = json.loads(request(project, case("add", "bench:add", params={"n": 1})).to_json()) | change
    done = start(json.dumps(raw), locks=locks)
    assert (done.returncode, done.stdout) == (2, "")
    assert complaint in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_no_json_is_refused(locks: Path) -> None:
    done = start("not json", locks=locks)
    assert done.returncode == 2
    assert "not JSON" in done.stderr


@pytest.mark.skipif(Path("/dev/nvidia0").exists(), reason="this machine has a GPU")
def test_cuda_without_a_gpu_says_so(project: Path, locks: Path) -> None:
    outcome = launch(request(project, case("add", "bench:add", params={"n": 1}), device="cuda"), locks=locks)
    [run] = outcome["runs"]
    assert run["status"] == "invalid"
    assert "no CUDA device" in run["reason"]


@pytest.mark.parametrize(
    ("python", "complaint"),
    [("/nowhere/python", "does not start"), ("/bin/false", "cannot load the harness")],
)
def test_a_broken_interpreter_is_the_cases_error(
    project: Path, locks: Path, python: str, complaint: str
) -> None:
    outcome = launch(request(project, case("add", "bench:add", params={"n": 1}), python=python), locks=locks)
    [run] = outcome["runs"]
    assert run["status"] == "error"
    assert complaint in run["reason"]


def test_pinned_cores_reach_the_child(project: Path, locks: Path, tmp_path: Path) -> None:
    core = min(os.sched_getaffinity(0))
    outcome = launch(
        request(
            project,
            case("nproc", command=("nproc",), output="plain"),
            cpus=(core,),
        ),
        locks=locks,
    )
    assert outcome["by_name"]["nproc"]["output"].strip() == "1"
    assert outcome["environment"]["klass"]["cpu_cores"] == 1
