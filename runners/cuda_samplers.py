"""The two ways to take a sample on the GPU: a graph of the call on every slot, or events around one call."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, Protocol

import torch

from .subject import Judge, Slot

# torch ships these without types.
_new_event: Callable[..., Any] = torch.cuda.Event
_new_stream: Callable[[], Any] = torch.cuda.Stream
block: Callable[[int], None] = torch.cuda._sleep


def event() -> Any:
    """A timing event."""
    return _new_event(enable_timing=True)


class Sampler(Protocol):
    """Takes one sample on the current stream, between `start` and `end`, over `calls` calls."""

    calls: int
    method: str
    host_s: float

    def outputs(self) -> list[tuple[Slot, Any]]: ...

    def enqueue(self, start: Any, end: Any) -> None: ...


class GraphSampler:
    """Replays the captured calls. Raises RuntimeError from its constructor when the call cannot be captured."""

    method = "cuda_graph"
    host_s = 0.0

    def __init__(self, judge: Judge, slots: Sequence[Slot]) -> None:
        self.calls = len(slots)
        self._slots = list(slots)
        function = judge.subject.function
        stream: Any = _new_stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for slot in self._slots[:3]:
                function(*slot.args, **slot.kwargs)
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        self._graph = torch.cuda.CUDAGraph()
        self._outputs = []
        with torch.cuda.graph(self._graph):
            for slot in self._slots:
                self._outputs.append(judge.observed(slot, function(*slot.args, **slot.kwargs)))

    def outputs(self) -> list[tuple[Slot, Any]]:
        return list(zip(self._slots, self._outputs, strict=True))

    def enqueue(self, start: Any, end: Any) -> None:
        start.record()
        self._graph.replay()
        end.record()


class EventSampler:
    """One call on the next slot, queued behind a blocking kernel so that the host is never waited for."""

    method = "events"

    def __init__(self, judge: Judge, slots: Sequence[Slot]) -> None:
        self.calls = 1
        self._judge = judge
        self._slots = list(slots)
        self._next = 0
        self._last: list[tuple[Slot, Any]] = []
        self.host_s = statistics.median(host_overhead_s(judge, slots, count=5))

    def outputs(self) -> list[tuple[Slot, Any]]:
        return self._last

    def enqueue(self, start: Any, end: Any) -> None:
        slot = self._slots[self._next % len(self._slots)]
        self._next += 1
        start.record()
        output = self._judge.subject.function(*slot.args, **slot.kwargs)
        end.record()
        self._last = [(slot, self._judge.observed(slot, output))]


def host_overhead_s(judge: Judge, slots: Sequence[Slot], *, count: int = 50) -> list[float]:
    """Host time from call to return, in seconds, while the device has nothing queued."""
    function = judge.subject.function
    samples = []
    for i in range(count + 5):
        slot = slots[i % len(slots)]
        torch.cuda.synchronize()
        start = perf_counter()
        function(*slot.args, **slot.kwargs)
        samples.append(perf_counter() - start)
    torch.cuda.synchronize()
    return samples[5:]
