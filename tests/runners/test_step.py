"""The step tier: phases, losses as the gate, memory."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runners.context import Context
from runners.loading import CaseError
from runners.result import CaseSpec, MetricSpec, RunResult, Status
from runners.step import run_case

from .launching import TIME, case

MODULE = "perfdb_step_project"
METRICS = (
    TIME,
    MetricSpec("forward", "us", lower_is_better=True),
    MetricSpec("memory", "MiB", lower_is_better=True),
)


class Descent:
    """Gradient descent on x^2, in plain Python: losses are known in closed form."""

    def __init__(self, seed: int, device: str, rate: float = 0.1) -> None:
        self.x, self.rate, self.gradient = 2.0 + seed, rate, 0.0
        self.block = bytearray(0)
        self.phases = {
            "data": self.data,
            "forward": self.forward,
            "backward": self.backward,
            "optimizer": self.step,
        }

    def data(self) -> None:
        self.block = bytearray(128 * 2**20)  # far above what the process may give back meanwhile

    def forward(self) -> float:
        time.sleep(0.002)
        return self.x**2

    def backward(self) -> None:
        self.gradient = 2 * self.x

    def step(self) -> None:
        self.x -= self.rate * self.gradient


class Diverges(Descent):
    def forward(self) -> float:
        return float("nan")


class Silent(Descent):
    def forward(self) -> None:  # type: ignore[override]
        return None


class Reported(Descent):
    """Gives its loss through a `loss` method instead of forward's return value."""

    def __init__(self, seed: int, device: str) -> None:
        super().__init__(seed, device)
        self.phases["forward"] = lambda: None

    def loss(self) -> float:
        return 7.0


GOLDEN = [4.0 * 0.8 ** (2 * i) for i in range(6)]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    module = SimpleNamespace(
        Descent=Descent,
        Diverges=Diverges,
        Silent=Silent,
        Reported=Reported,
        Bare=lambda seed, device: object(),
    )
    monkeypatch.setitem(__import__("sys").modules, MODULE, module)
    (tmp_path / "golden.json").write_text(json.dumps(GOLDEN))
    return tmp_path


def run(root: Path, name: str, **fields: Any) -> RunResult:
    spec: CaseSpec = case("step", f"{MODULE}:{name}", tier="step", **{"metrics": METRICS, **fields})
    context = Context(
        root=root,
        python="",
        device="cpu",
        seed=5,
        deadline=time.monotonic() + 60,
        budget_s=0.1,
        log=lambda line: None,
    )
    return run_case(spec, context)


def test_phases_memory_and_losses_against_the_golden_file(root: Path) -> None:
    result = run(root, "Descent", options={"golden": "golden.json"})
    assert (result.status, result.reason) == (Status.OK, "")
    total, forward, memory = (item.samples for item in result.measurements)
    assert len(total) == len(forward) >= 1
    assert all(part >= 2000 and whole >= part for whole, part in zip(total, forward, strict=True))
    assert memory[0] >= 40
    assert result.correctness is not None
    assert result.correctness["gate"] == "golden"
    assert result.correctness["losses"] == pytest.approx(GOLDEN)


def test_a_fixed_number_of_steps(root: Path) -> None:
    result = run(root, "Descent", options={"golden": "golden.json", "steps": 4})
    assert len(result.measurements[0].samples) == 4


def test_another_loss_stops_the_case_before_timing(root: Path) -> None:
    result = run(root, "Descent", params={"rate": 0.1001}, options={"golden": "golden.json"}, rtol=1e-5)
    assert result.status is Status.INCORRECT
    assert "the loss of step 1 is" in result.reason
    assert result.measurements == []
    assert (
        run(root, "Descent", params={"rate": 0.1001}, options={"golden": "golden.json"}, rtol=1e-1).status
        is Status.OK
    )


def test_a_loss_that_is_no_number_is_incorrect_and_stays_on_the_wire(root: Path) -> None:
    result = run(root, "Diverges")
    assert result.status is Status.INCORRECT
    assert "is nan" in result.reason
    assert result.correctness is not None
    assert result.correctness["losses"][0] == "nan"


def test_no_loss_where_one_is_expected(root: Path) -> None:
    result = run(root, "Silent", options={"golden": "golden.json"})
    assert result.status is Status.INCORRECT
    assert "gives no loss" in result.reason


def test_a_loss_method_is_read(root: Path) -> None:
    result = run(root, "Reported")
    assert result.correctness is not None
    assert result.correctness["losses"] == [7.0] * 5


def test_the_reference_stands_in_for_a_missing_golden_file(root: Path) -> None:
    options = {"golden": "absent.json", "reference": f"{MODULE}:Descent"}
    assert run(root, "Descent", options=options).correctness["gate"] == "reference"  # type: ignore[index]
    assert run(root, "Reported", options=options).status is Status.INCORRECT


def test_without_a_gate_the_result_says_so(root: Path) -> None:
    result = run(root, "Descent")
    assert result.status is Status.OK
    assert "no correctness gate" in result.reason


@pytest.mark.parametrize(
    ("name", "fields", "complaint"),
    [
        ("Bare", {}, "no `phases`"),
        ("Descent", {"params": {"depth": 2}}, "does not accept"),
        ("Descent", {"options": {"golden": "../golden.json"}}, "outside of the repository"),
        ("Descent", {"options": {"goldn": "x"}}, "unknown goldn"),
        ("Descent", {"metrics": (MetricSpec("rate", "GB/s", lower_is_better=False),)}, "time and memory"),
    ],
)
def test_what_breaks_the_contract(root: Path, name: str, fields: dict[str, Any], complaint: str) -> None:
    with pytest.raises(CaseError) as caught:
        run(root, name, **fields)
    assert complaint in str(caught.value)


@pytest.mark.parametrize("text", ["{}", "[]", '["a"]', "[true]", "nonsense"])
def test_a_golden_file_that_is_none(root: Path, text: str) -> None:
    (root / "bad.json").write_text(text)
    with pytest.raises(CaseError, match=r"golden 'bad.json'"):
        run(root, "Descent", options={"golden": "bad.json"})
