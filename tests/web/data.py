"""A small made-up project with one of everything, stored through the services that real results take."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import msgspec
from django.contrib.auth.models import User
from django.utils import timezone

from perfdb.models import (
    Alert,
    Bisection,
    Branch,
    Build,
    BuildStatus,
    Commit,
    Evidence,
    Job,
    JobState,
    Membership,
    Message,
    Pool,
    Project,
    Run,
    Series,
    Subscription,
    Worker,
)
from perfdb.services import alerts, bisection, detect, notify, schedule, subscribe
from perfdb.services.batch import Batch
from perfdb.services.ingest import Ingested, ingest
from perfdb.services.placing import place

PASSWORD = "correct horse battery"
HOSTILE = "<script>alert(1)</script></script><img src=x onerror=alert(2)>\"'&{{ 7 }}{% now %}"
REPOSITORY = "https://robot:hunter2@git.example.invalid/lab.git"
FIRST_DAY = datetime(2026, 1, 5, 9, tzinfo=UTC)
SUBJECTS = (
    "Fuse the bias into the epilogue", "Pad rows to the warp size", "Document the cache layout",
    "Schedule long prompts last", "Share the mask between heads", "Read weights in one pass",
    "Name the scratch buffers", "Bound the queue of waiting requests",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cell:
    """One case with one metric; the values are `level` times `step` from commit `at` on."""

    benchmark: str
    params: dict[str, object]
    metric: str
    unit: str
    level: float
    at: int = 1 << 30
    step: float = 1.0
    tier: str = "micro"
    lower_is_better: bool | None = True
    statistic: str = "median"

    def value(self, index: int) -> float:
        return self.level * (self.step if index >= self.at else 1.0)


@dataclass(frozen=True, slots=True)
class World:
    """What tests ask about, by name."""

    project: Project
    branch: Branch
    alert: Alert
    bisection: Bisection
    series: Series
    run: Run
    job: Job
    message: Message
    subscription: Subscription
    shas: list[str]
    culprit: int

    def pages(self) -> dict[str, str]:
        """Every page that a GET shows, by name."""
        slug = self.project.slug
        return {
            "home": "/",
            "project": f"/projects/{slug}/",
            "project-search": f"/projects/{slug}/?q=softmax",
            "commit": f"/projects/{slug}/commits/{self.shas[self.culprit]}/",
            "commit-unbuilt": f"/projects/{slug}/commits/{self.shas[7]}/",
            "alerts": f"/projects/{slug}/alerts/",
            "alerts-all": f"/projects/{slug}/alerts/?state=",
            "jobs": f"/projects/{slug}/jobs/",
            "subscriptions": f"/projects/{slug}/subscriptions/",
            "series": f"/series/{self.series.pk}/",
            "run": f"/runs/{self.run.uuid}/",
            "alert": f"/alerts/{self.alert.pk}/",
            "bisection": f"/bisections/{self.bisection.pk}/",
            "inbox": "/inbox/",
            "message": f"/inbox/{self.message.pk}/",
            "tokens": "/tokens/",
            "workers": "/workers/",
            "unsubscribe": f"/unsubscribe/{self.subscription.unsubscribe_token}/",
        }


def sha(number: int) -> str:
    return f"{(number + 1) * 0x9E3779B97F4A7C15F39CC0605CEDC8341082276BF3A27251F86C6A11D0C18E95 % (1 << 160):040x}"


def person(name: str, project: Project | None = None, role: str = "", *, superuser: bool = False) -> User:
    user = User.objects.create_user(name, password=PASSWORD, is_superuser=superuser)
    if project and role:
        Membership.objects.create(project=project, user=user, role=role)
    return user


def make_project(slug: str, commits: int, *, public: bool = True, extra: str = "") -> Project:
    """A project with `commits` placed commits; `extra` is appended to every text that an outsider writes.

    The second commit has no date."""
    name = slug.replace("-", " ").capitalize()
    project = Project.objects.create(slug=slug, name=name + extra, public=public)
    branch = Branch.objects.create(project=project, name=project.default_branch, kind="trunk")
    shas = [sha(number) for number in range(commits)]
    Commit.objects.bulk_create(
        Commit(
            project=project, sha=own, parents=shas[number - 1 : number] if number else [], author=f"Ada Lin{extra}",
            subject=f"{SUBJECTS[number % len(SUBJECTS)]}{extra}",
            committed_at=None if number == 1 else FIRST_DAY + timedelta(hours=3 * number),
        )
        for number, own in enumerate(shas)
    )  # fmt: skip
    place(branch, shas)
    return project


def batch(
    index: int, cells: list[Cell], *, seed: int, launches: int = 5, branch: str | None = None, text: str = "",
    driver: str = "575.51", with_commit: bool = True,
) -> Batch:  # fmt: skip
    """Launches of one commit with about 0.8 % noise from launch to launch."""
    rng = random.Random(seed)
    rows = []
    for _ in range(launches):
        runs: dict[tuple[str, str], dict[str, object]] = {}
        for cell in cells:
            key = (cell.benchmark, str(cell.params))
            run = runs.setdefault(
                key,
                {"benchmark": cell.benchmark, "params": cell.params, "tier": cell.tier, "metrics": [],
                 "log": f"warm-up 3\n{text}", "duration_s": 1.25},
            )  # fmt: skip
            level = cell.value(index) * rng.lognormvariate(0, 0.008)
            samples = [level * rng.lognormvariate(0, 0.01) for _ in range(20)]
            metrics = run["metrics"]
            assert isinstance(metrics, list)
            metrics.append(
                {"name": cell.metric, "unit": cell.unit, "lower_is_better": cell.lower_is_better,
                 "statistic": cell.statistic, "samples": samples}
            )  # fmt: skip
        rows.append(
            {
                "environment": {
                    "class": {"gpu_model": f"H200 141 GB{text}", "power_limit_w": 700},
                    "boundary": {"driver": driver, "torch": "2.11"},
                    "info": {"image": f"bench:4{text}"},
                },
                "health": {
                    "before": {"sm_clock_mhz": 1980, "temperature_c": 41},
                    "after": {"sm_clock_mhz": 1965, "temperature_c": 58, "note": text},
                },
                "runs": list(runs.values()),
            }
        )
    body: dict[str, object] = {"launches": rows}
    if with_commit:
        body["commit"] = {"sha": sha(index)}
    if branch:
        body["branch"] = branch
    return msgspec.convert(body, Batch)


def failed_batch(index: int, *, text: str = "") -> Batch:
    """A launch that ran out of memory."""
    run = {"benchmark": "serve", "params": {"trace": "chat"}, "tier": "replay", "status": "oom", "metrics": [],
           "reason": f"the server was killed at 2.0 GiB{text}", "log": f"MemoryError{text}"}  # fmt: skip
    return msgspec.convert({"commit": {"sha": sha(index)}, "launches": [{"runs": [run]}]}, Batch)


def cells(extra: str = "", culprit: int = 24) -> list[Cell]:
    softmax = f"softmax{extra}"
    return [
        Cell(softmax, {"n": 4096, "dtype": f"bf16{extra}"}, "time", "s", 41e-6, culprit, 1.31),
        Cell(softmax, {"n": 16384, "dtype": "bf16"}, "time", "s", 158e-6, culprit, 1.28),
        Cell("matmul", {"m": 2048, "k": 1024}, "time", "s", 320e-6),
        Cell("matmul", {"m": 2048, "k": 1024}, "throughput", "FLOP/s", 6.1e14, lower_is_better=False),
        Cell("train", {"model": "decoder-120m"}, "step_time", "s", 0.212, 31, 0.93, tier="step"),
        Cell("train", {"model": "decoder-120m"}, "peak_memory", "B", 3.2e9, tier="step"),
        Cell("serve", {"trace": "chat"}, "ttft_p99", "s", 0.38, tier="replay"),
        Cell("serve", {"trace": "chat"}, "goodput", "req/s", 11.4, tier="replay", lower_is_better=False),
        Cell(
            "serve", {"trace": "chat"}, "queue_length", "requests", 14.0, tier="replay", lower_is_better=None
        ),
    ]


def build_world(
    slug: str = "tensor-lab", *, commits: int = 40, public: bool = True, extra: str = "", culprit: int = 24
) -> World:
    """A project with a regression at commit `culprit`, its alert, a finished bisection, jobs, a build that failed,
    a run without a commit, one on a branch of its own, a run out of memory and a message."""
    project = make_project(slug, commits, public=public, extra=extra)
    branch = project.branches.get(name=project.default_branch)
    wanted = cells(extra, culprit)
    touched: set[int] = set()
    worker = _worker(extra)
    for index in range(commits):
        if index == 7:
            continue
        driver = "580.10" if index >= 15 else "575.51"
        touched |= store(
            project, batch(index, wanted, seed=index, text=extra, driver=driver), worker
        ).series_ids
    ingest(project, failed_batch(30, text=extra), worker=worker)
    ingest(project, batch(0, wanted[:1], seed=999, launches=1, text=extra, with_commit=False))
    ingest(project, batch(5, wanted[:1], seed=998, launches=1, text=extra, branch=f"topic{extra}"))
    subscription = subscribe.subscribe(project, email="sheriff@example.org")
    bundled = alerts.bundle(detect.analyse(touched))
    alert = next(row for row in Alert.objects.filter(pk__in=bundled.new) if row.kind == "regression")
    search = bisection.start_for_alert(alert)
    assert search is not None
    work_off(search, wanted, worker, text=extra)
    alert.refresh_from_db()
    notify.announce(alert, "new")
    Evidence.objects.create(
        alert=alert, name="artifact", sentence=f"The built artifact differs.{extra}", link="/workers/"
    )
    alerts.comment(alert, f"looking at it{extra}", who="ada")
    job = _jobs(branch, worker, extra)
    series = Series.objects.get(
        branch=branch, case__benchmark__name=wanted[0].benchmark, case__params__n=4096, metric__name="time"
    )
    run = Run.objects.filter(case=series.case, commit__sha=sha(culprit)).order_by("pk")[0]
    # Only now: while the bisection ran, nobody was to look for the repository.
    project.url, project.polled_at = REPOSITORY, timezone.now()
    project.save()
    search.refresh_from_db()
    return World(
        project=project, branch=branch, alert=alert, bisection=search, series=series, run=run, job=job,
        message=Message.objects.get(alert=alert, occasion="new"), subscription=subscription,
        shas=[sha(number) for number in range(commits)], culprit=culprit,
    )  # fmt: skip


def store(project: Project, rows: Batch, worker: Worker, job: Job | None = None) -> Ingested:
    stored = ingest(project, rows, worker=worker, job=job)
    assert not stored.rejected, stored.rejected
    return stored


def work_off(
    search: Bisection, wanted: list[Cell], worker: Worker, *, text: str = "", rounds: int = 60
) -> None:
    """Answer the probes of a bisection from the cells' true levels until it has ended."""
    for _ in range(rounds):
        if bisection.advance(search.pk).finished:
            return
        while job := schedule.claim(worker):
            index = next(i for i in range(10_000) if sha(i) == job.commit.sha)
            rows = batch(index, wanted, seed=5000 + job.pk, launches=job.launches or 3, text=text)
            store(job.project, rows, worker, job)
            schedule.finish(job, JobState.DONE)
    raise AssertionError("the bisection did not end")


def _worker(extra: str) -> Worker:
    pool, _ = Pool.objects.get_or_create(name="default")
    return Worker.objects.get_or_create(name=f"bench-1{extra}", defaults={"pool": pool, "host": "bench-1"})[0]


def _jobs(branch: Branch, worker: Worker, extra: str) -> Job:
    """A failed build with its job, one that waits; gives the failed one."""
    pool = worker.pool
    unbuilt = Commit.objects.get(project=branch.project, sha=sha(7))
    Build.objects.create(
        commit=unbuilt, command="make all", command_hash="0" * 64, status=BuildStatus.FAILED,
        log=f"error: no rule{extra}", duration_s=3.5,
    )  # fmt: skip
    failed = schedule.request(branch, unbuilt, pool=pool)
    Job.objects.claim(failed.pk, worker)
    failed.refresh_from_db()
    schedule.finish(failed, JobState.FAILED, reason=f"build failed{extra}")
    newest = branch.places.order_by("-position")[0].commit
    schedule.request(branch, newest, pool=pool, launches=5)
    failed.refresh_from_db()
    return failed
