"""What a trace looks like, in a form that two runs can be compared by: the TraceSummary of the wire."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from .trace import Trace
from .transforms import VERSION

SUMMARY_VERSION = 1
QUANTILES = tuple(i / 100 for i in range(101))
# Fixed, so that histograms of any two runs share their bins: half octaves for tokens (0 has a bin of its own),
# ten bins a decade for the time between arrivals.
TOKEN_EDGES = (0.0, *(2 ** (i / 2) for i in range(45)))
INTERARRIVAL_EDGES_S = (0.0, *(10 ** (i / 10) for i in range(-60, 41)))


@dataclass(frozen=True)
class Distribution:
    """Of n values. quantiles: at 0, 1 ... 100 %, linear between order statistics (Hyndman and Fan's type 7).

    counts[i] is how many lie in [edges[i], edges[i + 1]), the last bin without upper end; the edges are fixed
    by SUMMARY_VERSION and the name of the field, and not repeated here. cv: standard deviation / mean.
    """

    n: int
    mean: float
    std: float
    cv: float | None
    quantiles: list[float]
    counts: list[int]


@dataclass(frozen=True)
class PrefixSharing:
    """How much of the prompts could come from an endless prefix cache.

    hit_rate: blocks whose whole prefix was seen in an earlier request / all blocks.
    """

    block_tokens: int
    blocks: int
    distinct_blocks: int
    hit_rate: float


@dataclass(frozen=True)
class TraceSummary:
    """Of the trace as it is sent, after its transform.

    hash: of its content. rate: (n - 1) / span, per second; None for fewer than two arrival times.
    distinct_times: fewer than requests when the recorder's clock had a coarse grid.
    classes: requests by class.
    """

    hash: str
    name: str
    source_sha256: str
    format: str
    transform: dict[str, Any]
    transform_version: int
    requests: int
    span_s: float
    rate: float | None
    distinct_times: int
    input_tokens: Distribution
    output_tokens: Distribution
    interarrival_s: Distribution
    classes: dict[str, int]
    prefix: PrefixSharing | None
    version: int = SUMMARY_VERSION

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def summarise(trace: Trace, *, name: str, transform: Mapping[str, Any] | None = None) -> TraceSummary:
    """`name` is the file's, `transform` is what was applied to `trace` already."""
    requests = trace.requests
    times = [request.at_s for request in requests]
    gaps = [later - earlier for earlier, later in pairwise(times)]
    return TraceSummary(
        hash=trace.content_hash(),
        name=name,
        source_sha256=trace.source_sha256,
        format=trace.format,
        transform=dict(transform or {}),
        transform_version=VERSION,
        requests=len(requests),
        span_s=trace.span_s,
        rate=(len(requests) - 1) / trace.span_s if trace.span_s > 0 else None,
        distinct_times=len(set(times)),
        input_tokens=_distribution([request.input_tokens for request in requests], TOKEN_EDGES),
        output_tokens=_distribution([request.output_tokens for request in requests], TOKEN_EDGES),
        interarrival_s=_distribution(gaps, INTERARRIVAL_EDGES_S),
        classes=dict(sorted(Counter(request.klass for request in requests).items())),
        prefix=_prefix(trace),
    )


def _distribution(values: Sequence[float], edges: Sequence[float]) -> Distribution:
    counts = [0] * len(edges)
    for value in values:
        counts[max(0, bisect_right(edges, value) - 1)] += 1
    if not values:
        return Distribution(0, 0.0, 0.0, None, [], counts)
    ordered = sorted(values)
    mean = math.fsum(values) / len(values)
    std = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))
    quantiles = []
    for q in QUANTILES:
        place = q * (len(ordered) - 1)
        low = int(place)
        high = min(low + 1, len(ordered) - 1)
        quantiles.append(ordered[low] + (place - low) * (ordered[high] - ordered[low]))
    return Distribution(len(values), mean, std, std / mean if mean > 0 else None, quantiles, counts)


def _prefix(trace: Trace) -> PrefixSharing | None:
    total = sum(len(request.blocks) for request in trace.requests)
    if trace.block_tokens is None or total == 0:
        return None
    seen: set[int] = set()
    hits = 0
    for request in trace.requests:
        for block in request.blocks:
            if block not in seen:
                break
            hits += 1
        seen.update(request.blocks)
    return PrefixSharing(trace.block_tokens, total, len(seen), hits / total)
