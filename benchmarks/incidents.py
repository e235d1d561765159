"""Whole projects with one planted incident each: does the alert come once, and does it name the right cause?

    python -m benchmarks.incidents [--incidents 40] [--quiet 5] [--seed 1]

Each project has 30 commits measured by two workers in two launches each, with sentinel, clock, health, environment,
artifact, definition and (replay) requests. Noise is resampled from real launches on an H200
(../shared/data/h200/harness.json.gz): a launch's deviation of time and clock are drawn together, per case. Incidents
start at a random commit. Rows go through ingest, detection, bundling and attribution as they do in service; no
bisection runs, so that no experiment helps. The attribution knows nothing of this module.

Not in here yet: two incidents at once, and a held-out range of parameters that the likelihoods were not tuned on (they
have not been tuned at all).
"""

from __future__ import annotations

import argparse
import gzip
import json
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from benchmarks.upload import database

if TYPE_CHECKING:
    from perfdb.models import Branch

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "h200" / "harness.json.gz"
COMMITS, LAUNCHES, REQUESTS = 30, 2, 150
WORKERS = ("w1", "w2")
START = datetime(2026, 3, 1, tzinfo=UTC)
CONTROL = "gemm.4096"


@dataclass(frozen=True)
class Deviation:
    """Of one real launch from the median launch: logarithms of time and of clock."""

    time: float
    mhz: float


@dataclass
class State:
    """What a launch would record without noise; an incident changes it from its commit on."""

    times: dict[str, float]
    control: float = 1e-3
    mhz: float = 1900.0
    busy: float = 0.1
    reasons: list[str] = field(default_factory=list)
    driver: str = "570.1"
    harness: str = "3"
    definition: str = "d1"
    trace: str = "t1"
    prompt: float = 6.0
    rate: float = 10.0


@dataclass(frozen=True)
class Incident:
    """`apply` changes the state of a worker. tier: of the cases."""

    name: str
    cause: str
    apply: Callable[[State, str, float], None]
    tier: Literal["micro", "replay"] = "micro"


def _slow(state: State, ratio: float, cases: Sequence[str] | None = None) -> None:
    for case in cases or list(state.times):
        state.times[case] *= ratio


def _slower_case(state: State, worker: str, ratio: float) -> None:
    _slow(state, ratio, list(state.times)[:1])


def _slower_cases(state: State, worker: str, ratio: float) -> None:
    _slow(state, ratio, list(state.times)[:3])


def _throttled(state: State, worker: str, ratio: float) -> None:
    if worker == WORKERS[0]:
        _slow(state, ratio)
        state.control *= ratio
        state.mhz /= ratio
        state.reasons = ["sw_power_cap"]


def _driver(state: State, worker: str, ratio: float) -> None:
    _slow(state, ratio)
    state.control *= 1 + 0.8 * (ratio - 1)
    state.driver = "575.2"


def _neighbour(state: State, worker: str, ratio: float) -> None:
    if worker == WORKERS[1]:
        _slow(state, ratio)
        state.control *= ratio
        state.busy = 0.7


def _longer(state: State, worker: str, ratio: float) -> None:
    _slow(state, ratio)
    state.trace, state.prompt = "t2", state.prompt + float(np.log(ratio)) + 0.3


def _busier(state: State, worker: str, ratio: float) -> None:
    _slow(state, ratio)
    state.trace, state.rate = "t2", 2 * state.rate


def _redefined(state: State, worker: str, ratio: float) -> None:
    _slow(state, ratio)
    state.definition = "d2"


def _upgraded(state: State, worker: str, ratio: float) -> None:
    _slow(state, ratio)
    state.harness = "4"


INCIDENTS = (
    Incident("one case slower", "code", _slower_case),
    Incident("several cases slower", "code", _slower_cases),
    Incident("slower server", "code", _slower_case, "replay"),
    Incident("one worker throttled", "infra", _throttled),
    Incident("new driver everywhere", "infra", _driver),
    Incident("noisy neighbour", "infra", _neighbour),
    Incident("longer prompts", "workload", _longer, "replay"),
    Incident("higher rate", "workload", _busier, "replay"),
    Incident("benchmark changed", "method", _redefined),
    Incident("harness upgraded", "method", _upgraded),
)


def deviations() -> dict[str, list[Deviation]]:
    """By case, one for each of the real launches."""
    with gzip.open(DATA) as file:
        launches = json.load(file)
    found = {}
    for case in launches[0]["cases"]:
        rows = [
            (median(launch["cases"][case]["steady"]), launch["cases"][case]["mhz"]) for launch in launches
        ]
        times, clocks = np.log([row[0] for row in rows]), np.log([row[1] for row in rows])
        found[case] = [
            Deviation(float(t), float(c))
            for t, c in zip(times - np.median(times), clocks - np.median(clocks), strict=True)
        ]
    return found


class World:
    """One project: its branch, and how its launches come out."""

    def __init__(self, number: int, noise: dict[str, list[Deviation]], rng: np.random.Generator) -> None:
        from perfdb.models import Branch, Commit, Project
        from perfdb.services.placing import place

        self.rng, self.noise = rng, noise
        self.cases = [case for case in noise if "@" not in case and case != CONTROL]
        project = Project.objects.create(slug=f"p{number}", name=f"p{number}")
        self.shas = [uuid.UUID(int=int(rng.integers(2**62))).hex + f"{i:08x}" for i in range(COMMITS)]
        Commit.objects.bulk_create(Commit(project=project, sha=sha) for sha in self.shas)
        self.branch: Branch = Branch.objects.create(project=project, name="main", kind="trunk")
        place(self.branch, self.shas)

    def play(self, incident: Incident | None, *, start: int, ratio: float) -> list[Any]:
        """Measure all commits, analyse, attribute; gives the regression alerts."""
        from perfdb.models import Alert
        from perfdb.services import alerts, attribute, detect

        series: set[int] = set()
        for position in range(COMMITS):
            for number, worker in enumerate(WORKERS):
                state = State(dict.fromkeys(self.cases, 1e-2))
                if incident is not None and position >= start:
                    incident.apply(state, worker, ratio)
                at = START + timedelta(hours=position, minutes=10 * number)
                tier = incident.tier if incident else "micro"
                series |= self._store(position, worker, state, at, tier)
        for alert_id in alerts.bundle(detect.analyse(series)).touched:
            attribute.attribute(alert_id)
        return list(Alert.objects.filter(branch=self.branch, kind="regression"))

    def _draw(self, case: str) -> Deviation:
        return self.noise[case][self.rng.integers(len(self.noise[case]))]

    def _store(
        self, position: int, worker: str, state: State, at: datetime, tier: Literal["micro", "replay"]
    ) -> frozenset[int]:
        from perfdb.models import Build, BuildStatus, Commit, Worker
        from perfdb.services import catalogue, ingest
        from perfdb.services.batch import Batch, CommitRow, EnvironmentRow, LaunchRow

        row, _ = Worker.objects.get_or_create(name=worker, defaults={"pool": catalogue.pool("default")})
        build, _ = Build.objects.get_or_create(
            commit=Commit.objects.get(sha=self.shas[position], project=self.branch.project),
            command_hash="b",
            defaults={"command": "make", "status": BuildStatus.OK, "artifact_hash": f"a{position}"},
        )
        launches = []
        for _ in range(LAUNCHES):
            control = {"product_s": state.control * float(np.exp(self._draw(CONTROL).time))}
            launches.append(
                LaunchRow(
                    id=uuid.UUID(bytes=self.rng.bytes(16)),
                    environment=EnvironmentRow(klass={"gpu": "H200"}, boundary={"driver": state.driver}),
                    health={
                        "during": {"host_busy": state.busy, "event_reasons": state.reasons},
                        "sentinel": {"before": control},
                    },
                    harness_version=state.harness,
                    started_at=at,
                    runs=[self._run(case, state, tier) for case in state.times],
                )
            )
        batch = Batch(launches=launches, commit=CommitRow(sha=self.shas[position]))
        return ingest.ingest(
            self.branch.project, batch, branch=self.branch, worker=row, build=build
        ).series_ids

    def _run(self, case: str, state: State, tier: Literal["micro", "replay"]) -> Any:
        from perfdb.services.batch import MetricRow, RunRow

        drawn = self._draw(case)
        value = state.times[case] * float(np.exp(drawn.time))
        clock = [state.mhz * float(np.exp(drawn.mhz))] if tier == "micro" else None
        return RunRow(
            benchmark=case,
            tier=tier,
            definition_hash=state.definition,
            trace_summary={"hash": state.trace} if tier == "replay" else None,
            requests=_requests(state) if tier == "replay" else None,
            metrics=[MetricRow("time", "s", [value], lower_is_better=True, mhz=clock)],
        )


def _requests(state: State) -> dict[str, list[Any]]:
    """The trace's content is the same in every launch."""
    rng = np.random.default_rng(len(state.trace) + int(10 * state.prompt))
    at = np.cumsum(rng.exponential(1 / state.rate, REQUESTS)).tolist()
    return {
        "t_sched": at, "t_send": at, "t_first": at, "t_last": at,
        "input_tokens": [int(v) + 1 for v in rng.lognormal(state.prompt, 0.6, REQUESTS)],
        "output_tokens": [int(v) + 1 for v in rng.lognormal(4.0, 0.5, REQUESTS)],
        "status": ["ok"] * REQUESTS,
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--incidents", type=int, default=40)
    parser.add_argument("--quiet", type=int, default=5, help="projects without an incident")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    with database():
        rng, noise = np.random.default_rng(args.seed), deviations()
        said: dict[str, Counter[str]] = {incident.name: Counter() for incident in INCIDENTS}
        alone = right = blamed = 0
        for number in range(args.incidents):
            incident = INCIDENTS[number % len(INCIDENTS)]
            found = World(number, noise, rng).play(
                incident, start=int(rng.integers(12, 22)), ratio=float(rng.uniform(1.08, 1.4))
            )
            answer = found[0].cause if found else "no alert"
            said[incident.name][answer] += 1
            alone += len(found) == 1
            right += bool(found) and all(alert.cause == incident.cause for alert in found)
            blamed += incident.cause == "infra" and any(alert.cause == "code" for alert in found)
        print(f"{'planted':<26}{'cause':<10}said")
        for incident in INCIDENTS:
            print(f"{incident.name:<26}{incident.cause:<10}{dict(said[incident.name])}")
        print(
            f"cause right {right}/{args.incidents}, one alert {alone}/{args.incidents}, infra called code {blamed}"
        )
        false = sum(
            len(World(10_000 + n, noise, rng).play(None, start=0, ratio=1.0)) for n in range(args.quiet)
        )
        print(f"alerts in {args.quiet} quiet projects: {false}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
