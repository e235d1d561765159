"""What ingest takes, from a worker, an upload or a history import alike: launches of one commit.

msgspec structures, so that an upload is decoded straight into them; an error names the path of the field.
"""

from __future__ import annotations

import base64
import binascii
import uuid
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from perfdb.stats.ranks import Floats

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=500)]
StatusName = Literal["ok", "incorrect", "oom", "error", "timeout", "invalid"]
TierName = Literal["static", "micro", "step", "replay"]
StatisticName = Literal["median", "mean", "min", "max", "p90", "p95", "p99", "p999", "rate", "count"]


class PackedArray(msgspec.Struct, forbid_unknown_fields=True):
    """A typed array: little-endian bytes in base64, as plotly reads it too."""

    dtype: Literal["f8", "f4"]
    bdata: str

    @property
    def count(self) -> int:
        """How many values the text holds (one more where it is padded), without decoding it."""
        return len(self.bdata) * 3 // 4 // int(self.dtype[1])

    def array(self) -> Floats:
        """Raises ValueError where the text is not base64 or not a whole number of values."""
        try:
            raw = base64.b64decode(self.bdata, validate=True)
        except (binascii.Error, ValueError):
            raise ValueError("bdata is not base64") from None
        width = int(self.dtype[1])
        if len(raw) % width:
            raise ValueError(f"bdata holds {len(raw)} bytes, no whole number of {self.dtype}")
        return np.frombuffer(raw, dtype=f"<{self.dtype}").astype(np.float64)


Samples = list[float] | PackedArray


def as_array(samples: Samples) -> Floats:
    return samples.array() if isinstance(samples, PackedArray) else np.asarray(samples, dtype=np.float64)


class MetricRow(msgspec.Struct, forbid_unknown_fields=True):
    """Samples of one metric in `unit`. `lower_is_better` null: the direction is unknown."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    unit: Annotated[str, msgspec.Meta(max_length=60)]
    samples: Samples
    lower_is_better: bool | None = None
    statistic: StatisticName = "median"
    deterministic: bool = False
    tracked: bool = True
    mhz: Samples | None = None
    value: float | None = None
    failures: Annotated[int, msgspec.Meta(ge=0, le=2_000_000_000)] = 0


class RunRow(msgspec.Struct, forbid_unknown_fields=True):
    """One case in one launch. `requests` holds the aligned arrays of a replay."""

    benchmark: Name
    metrics: list[MetricRow]
    tier: TierName = "micro"
    params: dict[str, Any] = {}
    status: StatusName = "ok"
    reason: str = ""
    log: str = ""
    started_at: datetime | None = None
    duration_s: float | None = None
    definition_hash: str = ""
    correctness: dict[str, Any] | None = None
    work: dict[str, float] | None = None
    trace_summary: dict[str, Any] | None = None
    requests: dict[str, list[Any]] | None = None


class EnvironmentRow(msgspec.Struct, forbid_unknown_fields=True):
    """`class` separates series, `boundary` marks a boundary inside one, `info` only informs."""

    klass: dict[str, Any] = msgspec.field(default_factory=dict, name="class")
    boundary: dict[str, Any] = {}
    info: dict[str, Any] = {}


class LaunchRow(msgspec.Struct, forbid_unknown_fields=True):
    """One process. `id` is the client's key: the same id twice is stored once. Without it the content decides."""

    runs: list[RunRow]
    id: uuid.UUID | None = None
    environment: EnvironmentRow = msgspec.field(default_factory=EnvironmentRow)
    health: dict[str, Any] = {}
    harness_version: str = ""
    started_at: datetime | None = None
    duration_s: float | None = None


Sha = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{7,64}$")]


class CommitRow(msgspec.Struct, forbid_unknown_fields=True):
    """The commit measured.

    `first_parents` are its first-parent ancestors, newest first: they place the commit on its branch in a project
    whose repository the server does not fetch itself.
    """

    sha: Sha
    parents: list[Sha] = []
    first_parents: Annotated[list[Sha], msgspec.Meta(max_length=1000)] = []
    author: str = ""
    subject: str = ""
    committed_at: datetime | None = None
    dirty: bool = False


class Batch(msgspec.Struct, forbid_unknown_fields=True):
    """Launches of one commit on one branch in one pool."""

    launches: list[LaunchRow]
    commit: CommitRow | None = None
    branch: Annotated[str, msgspec.Meta(min_length=1, max_length=300)] | None = None
    pull_request: Annotated[int, msgspec.Meta(ge=1, le=2_000_000_000)] | None = None
    pool: Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9_-]{1,80}$")] = "default"
