"""Alerts get the cause that their stored facts carry, with the lines that led to it."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from perfdb.models import Alert, Branch, Build, BuildStatus, Change, Commit, Project, Series, Worker
from perfdb.services import alerts, catalogue, detect, ingest
from perfdb.services.attribute import attribute
from perfdb.services.batch import Batch, CommitRow, EnvironmentRow, LaunchRow, MetricRow, RunRow, TierName
from perfdb.services.placing import place

COMMITS, STEP = 24, 14
CASES = ("gemm", "softmax", "norm", "attention", "embed")
START = datetime(2026, 3, 1, tzinfo=UTC)


@dataclass
class Facts:
    """What one commit's launches on one worker record; a test changes it from STEP on."""

    times: dict[str, float] = field(default_factory=lambda: dict.fromkeys(CASES, 1.0))
    sentinel: float = 1.0
    mhz: float = 1800.0
    during: dict[str, Any] = field(default_factory=lambda: {"host_busy": 0.1, "event_reasons": []})
    driver: str = "570.1"
    harness: str = "3"
    definition: str = "d1"
    trace: dict[str, Any] | None = None
    same_build: bool = False


Incident = Callable[[Facts, str], None]


@pytest.fixture
def branch(db: None) -> Branch:
    project = Project.objects.create(slug="lab", name="lab")
    shas = [f"{number:040x}" for number in range(1, COMMITS + 1)]
    for number, sha in enumerate(shas):
        Commit.objects.create(project=project, sha=sha, parents=shas[number - 1 : number] if number else [])
    branch = Branch.objects.create(project=project, name="main", kind="trunk")
    place(branch, shas)
    return branch


def play(
    branch: Branch, change: Incident, *, workers: tuple[str, ...] = ("w1", "w2"), tier: TierName = "micro"
) -> Alert:
    """Measure the branch, with `change` applied to the facts from STEP on, and attribute the regression found."""
    rng = np.random.default_rng(5)
    series: set[int] = set()
    for position in range(COMMITS):
        for number, name in enumerate(workers):
            facts = Facts()
            if tier == "replay":
                facts.trace = {"hash": "t1"}
            if position >= STEP:
                change(facts, name)
            at = START + timedelta(hours=position, minutes=10 * number)
            series |= store(branch, position, name, facts, at, rng, tier)
    bundled = alerts.bundle(detect.analyse(series))
    for alert_id in bundled.touched:
        attribute(alert_id)
    return Alert.objects.get(kind="regression")


def store(
    branch: Branch,
    position: int,
    name: str,
    facts: Facts,
    at: datetime,
    rng: np.random.Generator,
    tier: TierName,
) -> frozenset[int]:
    sha = f"{position + 1:040x}"
    worker, _ = Worker.objects.get_or_create(name=name, defaults={"pool": catalogue.pool("default")})
    build, _ = Build.objects.get_or_create(
        commit=Commit.objects.get(sha=sha),
        command_hash="b",
        defaults={
            "command": "make",
            "status": BuildStatus.OK,
            "artifact_hash": "same" if facts.same_build else f"a{position}",
        },
    )

    def noisy(value: float) -> float:
        return value * float(np.exp(rng.normal(0, 0.004)))

    launches = []
    for _ in range(2):
        control = {"product_s": noisy(facts.sentinel), "copy_s": noisy(2 * facts.sentinel)}
        runs = [
            RunRow(
                benchmark=case,
                tier=tier,
                definition_hash=facts.definition,
                trace_summary=facts.trace,
                metrics=[MetricRow("time", "s", [noisy(seconds)], lower_is_better=True, mhz=[facts.mhz])],
            )
            for case, seconds in facts.times.items()
        ]
        launches.append(
            LaunchRow(
                id=uuid.uuid4(),
                environment=EnvironmentRow(klass={"gpu": "x"}, boundary={"driver": facts.driver}),
                health={"during": facts.during, "sentinel": {"before": control, "after": control}},
                harness_version=facts.harness,
                started_at=at,
                runs=runs,
            )
        )
    batch = Batch(launches=launches, commit=CommitRow(sha=sha))
    done = ingest.ingest(branch.project, batch, branch=branch, worker=worker, build=build)
    assert not done.rejected
    return done.series_ids


def slower(facts: Facts, ratio: float, *cases: str) -> None:
    for case in cases or CASES:
        facts.times[case] *= ratio


def names(alert: Alert) -> set[str]:
    return set(alert.evidence.values_list("name", flat=True))


def test_slower_code_on_every_worker_is_code(branch: Branch) -> None:
    alert = play(branch, lambda facts, _: slower(facts, 1.2, "softmax"))
    assert alert.cause == "code", alert.cause_posterior
    assert {"sentinel steady", "all workers", "others steady", "same in cycles"} <= names(alert)
    assert sum(alert.cause_posterior.values()) == pytest.approx(1.0, abs=1e-3)


def test_one_worker_is_enough_for_code_where_the_sentinel_stood_still(branch: Branch) -> None:
    alert = play(branch, lambda facts, _: slower(facts, 1.2, "softmax"), workers=("w1",))
    assert alert.cause == "code", alert.cause_posterior


def test_throttled_worker_is_infra(branch: Branch) -> None:
    def throttle(facts: Facts, name: str) -> None:
        slower(facts, 1.3)
        facts.sentinel = 1.3
        facts.mhz /= 1.3
        facts.during = {"host_busy": 0.1, "event_reasons": ["sw_power_cap"]}

    alert = play(branch, throttle, workers=("w1",))
    assert alert.cause == "infra", alert.cause_posterior
    assert {"sentinel moved", "gone in cycles", "health", "everything moved"} <= names(alert)


def test_new_driver_everywhere_is_infra(branch: Branch) -> None:
    def driver(facts: Facts, name: str) -> None:
        slower(facts, 1.15)
        facts.sentinel = 1.15
        facts.driver = "575.2"

    alert = play(branch, driver)
    assert alert.cause == "infra", alert.cause_posterior
    assert "driver 570.1 to 575.2" in alert.evidence.get(name="environment changed").sentence


def test_another_trace_is_workload(branch: Branch) -> None:
    def longer(facts: Facts, name: str) -> None:
        slower(facts, 1.4)
        facts.trace = {"hash": "t2"}

    alert = play(branch, longer, tier="replay")
    assert alert.cause == "workload", alert.cause_posterior


def test_changed_definition_is_method(branch: Branch) -> None:
    def redefine(facts: Facts, name: str) -> None:
        slower(facts, 1.4, "norm")
        facts.definition = "d2"

    assert play(branch, redefine).cause == "method"


def test_upgraded_harness_is_method(branch: Branch) -> None:
    def upgrade(facts: Facts, name: str) -> None:
        slower(facts, 1.1)
        facts.harness = "4"

    alert = play(branch, upgrade)
    assert alert.cause == "method", alert.cause_posterior
    assert alert.evidence.get(name="harness changed").sentence == "The harness changed from 3 to 4."


def test_old_commit_at_the_new_level_turns_code_into_infra(branch: Branch) -> None:
    alert = play(branch, lambda facts, _: slower(facts, 1.2, "softmax"), workers=("w1",))
    assert alert.cause == "code"
    facts = Facts()
    slower(facts, 1.2, "softmax")
    late = START + timedelta(days=9)
    store(branch, STEP - 1, "w1", facts, late, np.random.default_rng(1), "micro")
    attribute(alert.pk)
    alert.refresh_from_db()
    assert alert.cause == "infra", alert.cause_posterior
    line = alert.evidence.get(name="old commit slow now")
    assert line.experiment


def test_failures_that_begin_at_a_commit_have_a_cause_too(branch: Branch) -> None:
    """From 0 there is no ratio."""
    rng = np.random.default_rng(3)
    for position in range(COMMITS):
        facts = Facts()
        facts.times["norm"] = 0.25 if position >= STEP else 0.0
        store(branch, position, "w1", facts, START + timedelta(hours=position), rng, "micro")
    alert = Alert.objects.create(
        project=branch.project,
        branch=branch,
        kind="regression",
        title="failures",
        good_position=STEP - 1,
        bad_position=STEP,
    )
    Change.objects.create(
        series=Series.objects.get(case__benchmark__name="norm"),
        alert=alert,
        kind="step",
        good_position=STEP - 1,
        bad_position=STEP,
        direction="regressed",
        verdict={"before": 0.0, "after": 0.25},
    )
    assert attribute(alert.pk) == "code"
    assert "sentinel steady" in names(alert)


def test_nothing_recorded_leaves_the_cause_unknown(branch: Branch) -> None:
    series: set[int] = set()
    rng = np.random.default_rng(8)
    for position in range(COMMITS):
        seconds = 1.2 if position >= STEP else 1.0
        launches = [
            LaunchRow(
                id=uuid.uuid4(),
                environment=EnvironmentRow(klass={"gpu": "x"}),
                runs=[
                    RunRow(
                        benchmark="work", metrics=[MetricRow("time", "s", [seconds * rng.normal(1, 0.003)])]
                    )
                ],
            )
            for _ in range(3)
        ]
        batch = Batch(launches=launches, commit=CommitRow(sha=f"{position + 1:040x}"))
        series |= ingest.ingest(branch.project, batch, branch=branch).series_ids
    bundled = alerts.bundle(detect.analyse(series))
    for alert_id in bundled.touched:
        attribute(alert_id)
    assert {alert.cause for alert in Alert.objects.all()} == {"unknown"}
