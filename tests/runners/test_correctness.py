"""Tolerances: what honest arithmetic does passes, what is beyond it does not; values of every kind."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from runners.context import Context
from runners.correctness import (
    UNIT_ROUNDOFF,
    Tolerance,
    WrongResult,
    block_errors,
    check_form,
    require_equal_plain,
    theory,
    tolerance_for,
)
from runners.loading import CaseError
from runners.micro import run_case
from runners.result import MetricSpec, Status
from runners.stopping import FixedCount
from runners.subject import Judge, Subject, normalized_arguments
from runners.timing import time_on_cpu
from runners.values import all_same_bits, cloned, doubled, leaves, overwrite, same_bits, size_bytes

from .launching import REPOSITORY, TIME, case

torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")

DTYPES = ["float32", "float16", "bfloat16"]


def softmax(x: Any) -> Any:
    return torch.softmax(x, -1)


def softmax_by_hand(x: Any) -> Any:
    wide = x.float()
    wide = (wide - wide.amax(-1, keepdim=True)).exp()
    return (wide / wide.sum(-1, keepdim=True)).to(x.dtype)


def rms(x: Any) -> Any:
    return x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt()


def rms_by_hand(x: Any) -> Any:
    """The sum taken in blocks of 64, as a kernel would."""
    wide = x.float()
    parts = wide.square().unflatten(-1, (-1, 64)).sum(-1).sum(-1, keepdim=True)
    return (wide / (parts / x.shape[-1] + 1e-6).sqrt()).to(x.dtype)


def product(x: Any) -> Any:
    return x @ x.mT


def product_in_blocks(x: Any) -> Any:
    wide = x.float()
    blocks = [wide[:, i : i + 32] @ wide[:, i : i + 32].mT for i in range(0, x.shape[1], 32)]
    return torch.stack(blocks).sum(0).to(x.dtype)


def judge(function: Callable[..., Any], reference: Callable[..., Any], dtype: str, **fields: Any) -> Judge:
    def make(seed: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
        generator = torch.Generator().manual_seed(seed)
        return (torch.randn(96, 512, generator=generator).to(getattr(torch, dtype)),), {}

    return Judge(Subject(function=function, make=make, reference=reference, **fields))


class TestCalibration:
    """K4: the reference against itself and honest variants pass on every seed; degraded ones never do."""

    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize(
        ("reference", "function"),
        [(f, f) for f in (softmax, rms, product)]
        + [(softmax, softmax_by_hand), (rms, rms_by_hand), (product, product_in_blocks)],
    )
    def test_honest_work_passes(
        self, reference: Callable[..., Any], function: Callable[..., Any], dtype: str
    ) -> None:
        held = judge(function, reference, dtype)
        for seed in range(6):
            held.examine(held.subject.slot(seed))
        assert held.compared == 6
        assert 0 <= held.worst["element"] <= 1

    @pytest.mark.parametrize(
        ("reference", "dtype", "lower"),
        [
            (reference, dtype, lower)
            for reference in (softmax, rms, product)
            for dtype, lower in (
                ("float32", "bfloat16"),
                ("float32", "float16"),
                ("float16", "bfloat16"),
                ("bfloat16", "float8_e4m3fn"),
            )
            # On the CPU torch's own float16 product is no better than a bfloat16 one.
            if (reference, dtype) != (product, "float16")
        ],
    )
    def test_a_lower_precision_is_caught(self, reference: Callable[..., Any], dtype: str, lower: str) -> None:
        def degraded(x: Any) -> Any:
            return reference(x.to(getattr(torch, lower)).float()).to(x.dtype)

        held = judge(degraded, reference, dtype)
        with pytest.raises(WrongResult):
            held.examine(held.subject.slot(0))

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_one_wrong_element_is_caught(self, dtype: str) -> None:
        def spoiled(x: Any) -> Any:
            out = rms(x)
            out[17, 123] += 1
            return out

        held = judge(spoiled, rms, dtype)
        with pytest.raises(WrongResult, match=r"times its bound|norm error"):
            held.examine(held.subject.slot(0))

    def test_a_wild_control_cannot_widen_the_tolerance_without_end(self) -> None:
        wide = tolerance_for("float32", reduction=4096, control=0.5, rtol=None, atol=None)
        assert wide.norm == pytest.approx(16 * theory("float32", 4096))
        assert wide.norm < 3e-4  # what TF32 shows

    def test_the_reduction_length_counts(self) -> None:
        short, long = (
            tolerance_for("float32", reduction=n, control=None, rtol=None, atol=None).norm
            for n in (1, 10_000)
        )
        assert short == pytest.approx(4 * UNIT_ROUNDOFF["float32"])
        assert long == pytest.approx(2 * 101 * UNIT_ROUNDOFF["float32"])

    def test_the_manifest_wins(self) -> None:
        def shifted(x: Any) -> Any:
            return rms(x) * 1.01

        held = judge(shifted, rms, "float32", rtol=0.02)
        held.examine(held.subject.slot(0))
        held = judge(shifted, rms, "float32", rtol=0.005)
        with pytest.raises(WrongResult):
            held.examine(held.subject.slot(0))


class TestErrors:
    TOLERANCE = Tolerance(norm=1e-3, rtol=1e-3)

    @pytest.mark.parametrize("array", [torch.tensor, numpy.array])
    def test_figures(self, array: Callable[..., Any]) -> None:
        errors = block_errors(array([3.0, 4.0]), array([3.0, 4.5]), self.TOLERANCE)
        assert errors.max_abs == pytest.approx(0.5)
        assert errors.norm == pytest.approx(0.5 / math.hypot(3, 4.5))

    @pytest.mark.parametrize("array", [torch.tensor, numpy.array])
    @pytest.mark.parametrize(
        ("ours", "wanted", "complaint"),
        [
            ([0.0, 0.0], [1.0, 2.0], "every value is zero"),
            ([1.0, math.nan], [1.0, 2.0], "not finite"),
            ([1.0, 2.0], [1.0, math.inf], "not finite"),
        ],
    )
    def test_no_figures(
        self, array: Callable[..., Any], ours: list[float], wanted: list[float], complaint: str
    ) -> None:
        with pytest.raises(WrongResult, match=complaint):
            block_errors(array(ours), array(wanted), self.TOLERANCE)

    def test_zero_against_zero_and_nothing_against_nothing(self) -> None:
        for values in ([0.0, 0.0], []):
            errors = block_errors(torch.tensor(values), torch.tensor(values), self.TOLERANCE)
            assert (errors.norm, errors.element) == (0, 0)

    @pytest.mark.parametrize(
        ("actual", "expected", "complaint"),
        [
            ((1, 2), [1, 2], "has the form"),
            ({"a": 1}, {"b": 1}, "has the form"),
            ([1], [1, 2], "has the form"),
            (torch.ones(2), 1.0, "is a Tensor"),
            (torch.ones(2), torch.ones(3), "has shape"),
            ([torch.ones(2)], [numpy.ones(2)], "is a Tensor"),
        ],
    )
    def test_other_forms(self, actual: Any, expected: Any, complaint: str) -> None:
        with pytest.raises(WrongResult, match=complaint):
            check_form(actual, expected)

    @pytest.mark.parametrize(
        ("actual", "expected"),
        [(1, 1.0), (math.nan, math.nan), ("a", "a"), (None, None), (1e20, 1e20 * (1 + 1e-12))],
    )
    def test_plain_values_that_are_equal(self, actual: Any, expected: Any) -> None:
        require_equal_plain("", actual, expected, rtol=None, atol=None)

    @pytest.mark.parametrize(
        ("actual", "expected"), [(1, 2), (True, 1), ("a", "b"), (None, 0), (1.0, math.nan)]
    )
    def test_plain_values_that_are_not(self, actual: Any, expected: Any) -> None:
        with pytest.raises(WrongResult):
            require_equal_plain("", actual, expected, rtol=None, atol=None)


class TestValues:
    TREE = {"a": [torch.ones(3), (numpy.zeros(2), 5)], "b": "text"}  # noqa: RUF012

    def test_leaves_have_paths(self) -> None:
        assert [path for path, _ in leaves(self.TREE)] == ["['a'][0]", "['a'][1][0]", "['a'][1][1]", "['b']"]
        assert size_bytes(self.TREE) == 12 + 16

    def test_clones_share_nothing(self) -> None:
        copy = cloned(self.TREE)
        assert all_same_bits(copy, self.TREE)
        copy["a"][0][0] = 2
        assert not all_same_bits(copy, self.TREE)
        assert self.TREE["a"][0][0] == 1  # type: ignore[index]

    def test_references_get_double(self) -> None:
        wide = doubled([torch.ones(2, dtype=torch.bfloat16), numpy.ones(2, "float32"), torch.arange(2), 3])
        assert [str(getattr(leaf, "dtype", "")) for leaf in wide] == [
            "torch.float64",
            "float64",
            "torch.int64",
            "",
        ]

    def test_overwriting_keeps_the_memory(self) -> None:
        old = (torch.zeros(2), numpy.zeros(2), torch.zeros(3), 1)
        new = (torch.ones(2), numpy.ones(2), torch.ones(4), 2)
        result = overwrite(old, new)
        assert result[0] is old[0]
        assert result[1] is old[1]
        assert result[2] is new[2]
        assert all_same_bits(result, new)

    @pytest.mark.parametrize("value", [torch.tensor(math.nan), numpy.array([math.nan]), math.nan, "x"])
    def test_bits_are_compared(self, value: Any) -> None:
        assert same_bits(value, cloned(value))
        assert not same_bits(value, 1)

    def test_minus_zero_is_another_bit(self) -> None:
        assert not same_bits(torch.tensor([0.0]), torch.tensor([-0.0]))

    @pytest.mark.parametrize(
        ("made", "arguments"),
        [((1, 2), ((1, 2), {})), ([1], ((1,), {})), (((1,), {"k": 2}), ((1,), {"k": 2}))],
    )
    def test_what_inputs_may_return(self, made: Any, arguments: Any) -> None:
        assert normalized_arguments(made) == arguments

    def test_what_inputs_may_not_return(self) -> None:
        with pytest.raises(CaseError, match="must return a tuple"):
            normalized_arguments(torch.ones(1))


class TestTiming:
    def test_short_calls_are_batched_and_all_checked(self) -> None:
        held = Judge(Subject(function=abs, make=lambda seed: ((seed - 2,), {}), reference=abs))
        slots = [held.subject.slot(seed) for seed in range(4)]
        for slot in slots:
            held.examine(slot)
        timing = time_on_cpu(held, slots, stopping=FixedCount(5), budget_s=1.0)
        assert len(timing.samples_s) == 5
        assert timing.batch > 100
        assert held.bitwise >= 5 * timing.batch

    def test_a_function_that_may_write_starts_each_call_from_its_inputs(self) -> None:
        def negate(x: Any) -> Any:
            return x.neg_()

        held = judge(negate, negate, "float32", mutates=True)
        slots = [held.subject.slot(seed) for seed in range(3)]
        for slot in slots:
            held.examine(slot)
        timing = time_on_cpu(held, slots, stopping=FixedCount(10), budget_s=0.1)
        assert timing.batch <= 3
        assert held.bitwise >= 10

    def test_samples_follow_a_clock_that_is_given(self) -> None:
        ticks = iter(range(0, 10**12, 10**6))
        held = Judge(Subject(function=abs, make=lambda seed: ((seed,), {})))
        slots = [held.subject.slot(0)]
        held.examine(slots[0])
        timing = time_on_cpu(held, slots, stopping=FixedCount(4), budget_s=0.1, clock=lambda: next(ticks))
        assert timing.samples_s == [1e-3] * 4
        assert timing.batch == 1


def test_numpy_functions_are_measured_and_judged(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    (tmp_path / "perfdb_numpy_project.py").write_text(
        "import numpy\n"
        "def inputs(seed, device, n):\n    return (numpy.random.default_rng(seed).normal(size=n),)\n"
        "def total(x):\n    return x.cumsum()\n"
        "def wrong(x):\n    return x.cumsum() * 1.0001\n"
        "def work(n):\n    return {'bytes': 16.0 * n}\n"
        "def impossible(n):\n    return {'bytes': 1e18}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    context = Context(tmp_path, "", "cpu", 1, time.monotonic() + 60, budget_s=0.05, log=lambda line: None)
    module = "perfdb_numpy_project"
    options = {"inputs": f"{module}:inputs", "reference": f"{module}:total", "work": f"{module}:work"}
    options["providers"] = {"other": f"{module}:total"}  # type: ignore[assignment]
    metrics = (TIME, MetricSpec("speed", "MB/s", lower_is_better=False))

    def run(entry: str, **changed: Any) -> Any:
        spec = case(
            "sum", f"{module}:{entry}", params={"n": 1000}, options=options | changed, metrics=metrics
        )
        return run_case(spec, context)

    right = run("total")
    assert (right.status, right.reason) == (Status.OK, "")
    assert [item.metric.name for item in right.measurements] == ["time", "speed", "time.other"]
    slow, speed = right.measurements[0].samples[0], right.measurements[1].samples[0]
    assert speed == pytest.approx(16_000 / slow)
    assert run("wrong").status is Status.INCORRECT
    impossible = run("total", work=f"{module}:impossible")
    assert impossible.status is Status.INVALID
    assert "faster than possible" in impossible.reason
    assert impossible.measurements
    with pytest.raises(CaseError, match=r"needs options\.work"):
        run("total", work=None)


def test_neither_torch_nor_numpy_is_imported_for_plain_functions() -> None:
    code = (
        "import sys, time; from pathlib import Path\n"
        "from runners.micro import run_case; from runners.context import Context\n"
        "from runners.result import CaseSpec, MetricSpec\n"
        "case = CaseSpec('b', 'micro', {}, (MetricSpec('t', 's', True),), entry='os:getpid')\n"
        "run = run_case(case, Context(Path('.'), '', 'cpu', 0, time.monotonic() + 9, budget_s=0.01))\n"
        "print(run.status.value, {'torch', 'numpy'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY, check=True, timeout=60
    )
    assert done.stdout.strip() == "ok set()"
