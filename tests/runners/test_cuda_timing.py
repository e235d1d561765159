"""The CUDA path's own logic on a machine without a GPU: torch's device calls are played by the host.

Capture is refused, as it is for a function that waits for the host, so the path by events is what runs; the
path by graph runs in test_gpu.py.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from runners import cuda_samplers, cuda_timing  # noqa: E402
from runners.clock import interval_mhz  # noqa: E402
from runners.correctness import Tolerance, WrongResult  # noqa: E402
from runners.stopping import FixedCount  # noqa: E402
from runners.subject import Judge, Subject  # noqa: E402

FACTS = cuda_timing.Device(l2_bytes=2**16, memory_bytes=2**30)


class Event:
    def __init__(self) -> None:
        self.at = 0.0

    def record(self) -> None:
        self.at = time.perf_counter()

    def synchronize(self) -> None:
        return

    def elapsed_time(self, other: Event) -> float:
        return (other.at - self.at) * 1e3


@pytest.fixture(autouse=True)
def host_as_device(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> Any:
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(cuda_timing, "DEVICE", "cpu")
    monkeypatch.setattr(cuda_samplers, "_new_event", lambda enable_timing: Event())
    monkeypatch.setattr(cuda_samplers, "_new_stream", refuse)
    monkeypatch.setattr(cuda_timing, "block", lambda cycles: None)
    monkeypatch.setattr(cuda_timing, "_clock_counter", lambda capacity: (None, "no clock"))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(cuda_timing.Device, "current", lambda: FACTS)


def double(x: Any) -> Any:
    return x * 2


def judged(function: Any, **fields: Any) -> tuple[Judge, list[Any]]:
    subject = Subject(
        function=function,
        make=lambda seed: ((torch.arange(64.0) + seed,), {}),
        reference=fields.pop("reference", double),
        **fields,
    )
    judge = Judge(subject)
    slots = [subject.slot(seed) for seed in range(4)]
    for slot in slots:
        judge.examine(slot)
    return judge, slots


def timed(judge: Judge, slots: list[Any], count: int = 20) -> Any:
    return cuda_timing.time_on_cuda(judge, slots, stopping=FixedCount(count), budget_s=0.05, device=FACTS)


def test_a_call_that_cannot_be_captured_is_timed_by_events_and_says_so() -> None:
    timing = timed(*judged(double))
    assert timing.method == "events"
    assert len(timing.samples_s) == 20
    assert timing.mhz is None
    assert "cannot be captured in a CUDA graph (operation not permitted" in " ".join(timing.notes)
    assert any("only 4 sets of inputs" in note for note in timing.notes)


def test_priming_leaves_nothing_behind() -> None:
    cuda_timing.prime()


def test_a_function_that_writes_into_its_argument_is_restored_before_each_call() -> None:
    def double_in_place(x: Any) -> Any:
        return x.mul_(2)

    judge, slots = judged(double_in_place, reference=double_in_place, mutates=True)
    assert len(timed(judge, slots).samples_s) == 20


def test_an_output_that_goes_wrong_while_timed_is_caught() -> None:
    calls = iter(range(10_000))

    def fades(x: Any) -> Any:
        return x * 2 if next(calls) < 30 else x * 2 + 1

    judge, slots = judged(fades)
    with pytest.raises(WrongResult):
        timed(judge, slots, count=100)


def test_noise_within_the_tolerance_is_no_finding() -> None:
    def jitters(x: Any) -> Any:
        return x * 2 * (1 + 2**-23 * torch.randint(0, 2, x.shape))

    assert len(timed(*judged(jitters), count=40).samples_s) == 40


def test_slots_cover_the_cache_and_fit_into_memory() -> None:
    facts = cuda_timing.Device(l2_bytes=60 * 2**20, memory_bytes=140 * 2**30)
    assert cuda_timing.slot_count(128 * 2**20, facts) == 12
    assert cuda_timing.slot_count(8 * 2**20, facts) == 15
    assert cuda_timing.slot_count(1024, facts) == 32
    assert cuda_timing.slot_count(4 * 2**30, facts) == 3
    assert cuda_timing.slot_count(0, facts) == 32


@pytest.mark.parametrize(
    ("ours", "wanted", "differs"),
    [
        ([1.0, 2.0], [1.0, 2.0], False),
        ([1.0, 2.0], [1.0, 2.001], False),
        ([1.0, 2.0], [1.0, 3.0], True),
        ([1.0, float("nan")], [1.0, 2.0], True),
        ([1.0, float("nan")], [1.0, float("nan")], False),
        ([1.0, float("inf")], [1.0, float("inf")], False),
        ([1.0, float("inf")], [1.0, 2.0], True),
    ],
)
def test_the_comparison_on_the_device(ours: list[float], wanted: list[float], differs: bool) -> None:
    tolerance = Tolerance(norm=1e-2, rtol=1e-2, explicit=True)
    left, right = torch.tensor(ours), torch.tensor(wanted)
    assert bool(cuda_timing._differs(left, right, tolerance)) is differs
    assert bool(cuda_timing._differs(left, right, None)) is (ours != wanted and str(ours) != str(wanted))


def test_poison_spares_the_inputs() -> None:
    x = torch.ones(4)
    slot = SimpleNamespace(args=(x,), kwargs={})
    out, alias = torch.zeros(4), x.view(2, 2)
    cuda_timing._poison([(slot, [out, alias, torch.ones(2, dtype=torch.int64)])], [slot])  # type: ignore[list-item]
    assert out.isnan().all()
    assert x.tolist() == [1.0] * 4


def test_a_clock_needs_both_stamps_on_one_sm() -> None:
    assert interval_mhz([3, 1000, 5000], [3, 2980, 6000]) == pytest.approx(1980)
    assert interval_mhz([3, 1000, 5000], [4, 2980, 6000]) is None
    assert interval_mhz([3, 1000, 5000], [3, 2980, 5000]) is None
    assert cuda_timing._filled([None, 10.0, 12.0, 11.0]) == [11.0, 10.0, 12.0, 11.0]
    assert cuda_timing._filled([None]) is None


class Graph:
    """Plays a CUDA graph: kernels called while it captures are noted, and run again by `replay`."""

    capturing: list[Any] | None = None

    def __init__(self) -> None:
        self.nodes: list[Any] = []

    def replay(self) -> None:
        for node in self.nodes:
            node()


def kernel(x: Any) -> Any:
    out = x * 2
    if Graph.capturing is not None:
        Graph.capturing.append(lambda: out.copy_(x * 2))
    return out


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextlib.contextmanager
    def capture(graph: Graph) -> Iterator[None]:
        monkeypatch.setattr(Graph, "capturing", graph.nodes)
        yield
        monkeypatch.setattr(Graph, "capturing", None)

    stream = SimpleNamespace(wait_stream=lambda other: None)
    monkeypatch.setattr(cuda_samplers, "_new_stream", lambda: stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda chosen: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", capture)


@pytest.mark.usefixtures("graphs")
class TestGraph:
    def test_a_replay_is_shared_out_over_its_calls(self) -> None:
        judge, slots = judged(kernel)
        timing = timed(judge, slots, count=30)
        assert (timing.method, timing.batch, len(timing.samples_s)) == ("cuda_graph", 4, 30)
        assert not any("captured" in note for note in timing.notes)

    def test_an_output_remembered_from_before_the_capture_is_caught(self) -> None:
        kept: dict[int, Any] = {}

        def remembers(x: Any) -> Any:
            return kept.setdefault(x.data_ptr(), x * 2)

        with pytest.raises(WrongResult, match="not finite"):
            timed(*judged(remembers))

    def test_work_that_the_graph_lacks_is_caught(self) -> None:
        def beside_the_graph(x: Any) -> Any:
            return x * 2

        with pytest.raises(WrongResult, match="not finite"):
            timed(*judged(beside_the_graph))

    def test_priming_goes_the_same_way(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(cuda_timing, "_add_one", kernel)
        cuda_timing.prime()
