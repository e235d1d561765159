"""The static tier, without a GPU. Compilation runs in a child process, as in production: this one may hold kernels
that were decorated for Triton's interpreter, which cannot be compiled."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from runners.sass import read_machine_code
from runners.static import MULTIPROCESSORS, occupancy

ROOT = Path(__file__).parents[2]
_CHILD = """
import json, sys, time
from dataclasses import asdict
from pathlib import Path
from runners.context import Context
from runners.loading import CaseError
from runners.result import CaseSpec, MetricSpec
from runners.static import run_case

request = json.loads(sys.argv[1])
context = Context(Path("."), sys.executable, "cpu", 0, time.monotonic() + 100, log=lambda line: None)
answers = []
for options, params, metrics in request:
    case = CaseSpec("b", "static", params, tuple(MetricSpec(*m) for m in metrics), options=options)
    try:
        answers.append(asdict(run_case(case, context)))
    except CaseError as error:
        answers.append(str(error))
print(json.dumps(answers))
"""
_METRICS = [
    ["registers", "registers", True],
    ["spills", "B", True],
    ["instructions", "instructions", True],
    ["matrix_instructions", "instructions", None],
    ["shared_memory", "B", True],
    ["occupancy", "ratio", False],
]
_SUBJECT = "tests.runners.static_subject"


def compile_cases(*cases: tuple[dict[str, Any], dict[str, Any], list[Any]], **variables: str) -> list[Any]:
    environment = {**os.environ, "TRITON_INTERPRET": "0", "PYTHONPATH": str(ROOT), **variables}
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, json.dumps(cases)],
        capture_output=True, text=True, cwd=ROOT, env=environment, timeout=150,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answers: list[Any] = json.loads(done.stdout)
    return answers


@pytest.fixture(scope="module")
def measured() -> list[Any]:
    kernels = {"kernels": f"{_SUBJECT}:kernels"}
    return compile_cases(
        (kernels, {}, _METRICS),
        (kernels, {}, _METRICS),
        (kernels, {"block": 4096}, _METRICS),
        ({**kernels, "targets": ["sm_80"]}, {}, _METRICS),
    )


def values(run: dict[str, Any]) -> dict[str, list[float]]:
    return {entry["metric"]["name"]: entry["samples"] for entry in run["measurements"]}


def test_a_sample_a_kernel_in_the_order_declared(measured: list[Any]) -> None:
    found = values(measured[0])
    assert all(len(samples) == 2 for samples in found.values())
    assert all(16 <= count <= 255 for count in found["registers"])
    assert found["matrix_instructions"][0] == 0
    assert found["matrix_instructions"][1] > 0
    assert found["spills"] == [0, 0]
    assert found["occupancy"][0] == 1.0
    assert found["shared_memory"][1] >= 2 * 64 * 64 * 2


def test_the_same_source_gives_the_same_artifact(measured: list[Any]) -> None:
    assert measured[0]["trace_summary"] == measured[1]["trace_summary"]
    first, larger = (run["trace_summary"]["static"] for run in (measured[0], measured[2]))
    assert first[0]["artifact"] != larger[0]["artifact"]
    assert first[1]["artifact"] == larger[1]["artifact"]
    assert first[0]["code"]["widest_global_access_bytes"] == 16


def test_another_target_gives_other_code(measured: list[Any]) -> None:
    hopper, ampere = (run["trace_summary"]["static"][1] for run in (measured[0], measured[3]))
    assert "HGMMA" in hopper["code"]["opcodes"]
    assert "HMMA" in ampere["code"]["opcodes"]
    assert "HGMMA" not in ampere["code"]["opcodes"]


def test_what_does_not_fit_is_named() -> None:
    answers = compile_cases(
        ({"kernels": f"{_SUBJECT}:missing_argument"}, {}, _METRICS),
        ({"kernels": f"{_SUBJECT}:not_a_kernel"}, {}, _METRICS),
        ({"kernels": f"{_SUBJECT}:broken"}, {}, _METRICS),
        ({"kernels": f"{_SUBJECT}:kernels", "targets": ["sm_12"]}, {}, _METRICS),
        ({"kernels": f"{_SUBJECT}:kernels", "colour": 1}, {}, _METRICS),
        ({}, {}, _METRICS),
        ({"kernels": f"{_SUBJECT}:kernels"}, {}, [["time", "s", True]]),
    )
    expected = (
        "neither signature nor constants give count",
        "expected a @triton.jit function",
        "does not compile for sm_90",
        "target 'sm_12' is not one of",
        "unknown colour",
        "needs options.kernels",
        "the static tier measures",
    )
    for answer, text in zip(answers, expected, strict=True):
        assert isinstance(answer, str)
        assert text in answer


def test_nothing_is_compiled_while_kernels_are_interpreted() -> None:
    [answer] = compile_cases(({"kernels": f"{_SUBJECT}:kernels"}, {}, _METRICS), TRITON_INTERPRET="1")
    assert "TRITON_INTERPRET is set" in answer


def test_occupancy_is_limited_by_the_scarcest_resource() -> None:
    hopper = MULTIPROCESSORS[90]
    assert occupancy(hopper, registers=32, shared_bytes=0, threads=256) == 1.0
    assert occupancy(hopper, registers=64, shared_bytes=0, threads=256) == 0.5
    assert occupancy(hopper, registers=32, shared_bytes=100 * 1024, threads=256) == 2 * 8 / 64
    assert occupancy(hopper, registers=255, shared_bytes=0, threads=1024) == 0.0
    assert occupancy(hopper, registers=16, shared_bytes=0, threads=32) == 0.5  # 32 blocks of one warp


def test_machine_code_is_counted_by_class() -> None:
    line = "        /*00{:02x}*/   {} ;   /* 0x{:016x} */\n"
    texts = (
        "@!P0 LDG.E.128 R4, desc[UR4][R2.64]",
        "STL.64 [R1], R4",
        "HGMMA.64x64x16.F32 R8",
        "FADD R1, R2",
        "NOP",
    )
    listing = "".join(line.format(16 * i, text, i + 7) for i, text in enumerate(texts))
    code = read_machine_code(listing)
    assert code.instructions == 4
    assert code.matrix_instructions == 1
    assert (code.spill_store_bytes, code.spill_load_bytes) == (8, 0)
    assert code.widest_global_access_bytes == 16
    assert code.mix["float"] == 1
    assert read_machine_code(listing + line.format(99, "NOP", 5)).digest == code.digest
    with pytest.raises(ValueError, match="no instruction"):
        read_machine_code("code for sm_90a")
