"""Situations that made other trackers answer wrongly, through the API: upload, analyse as a worker would, ask the gate.

Each test names its situation; the inputs are small, the answer is the right one.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client

from perfdb.models import Alert, Case, Commit, Measurement, Metric, Project, Run, Series
from perfdb.services import access, alerts, detect
from perfdb.services.placing import place


class Lab:
    """A project with a line of commits on main, a token, and the words of these tests."""

    def __init__(self, client: Client, commits: int) -> None:
        self.client = client
        self.project = Project.objects.create(slug="lab", name="Lab")
        self.shas = [f"{number:040x}" for number in range(1, commits + 1)]
        for number, sha in enumerate(self.shas):
            parents = self.shas[number - 1 : number] if number else []
            Commit.objects.create(project=self.project, sha=sha, parents=parents)
        branch = self.project.branches.create(name="main", kind="trunk")
        place(branch, self.shas)
        self.branch = branch
        secret = access.create_token("ci", ["read", "upload"], project=self.project).secret
        self.headers = {"Authorization": f"Bearer {secret}"}

    def send(self, commit: int | str | None, runs: list[dict[str, Any]], **extra: Any) -> Any:
        """One upload; every run is a launch of its own. `commit` is a place on main or a SHA."""
        sha = self.shas[commit] if isinstance(commit, int) else commit
        environment = extra.pop("environment", {"class": {"cpu_model": "test"}})
        body = {
            "commit": sha and {"sha": sha},
            "launches": [{"environment": environment, "runs": [run]} for run in runs],
            **extra,
        }
        answer = self.client.post(
            "/api/v1/projects/lab/uploads",
            json.dumps(body),
            content_type="application/json",
            headers=self.headers,
        )
        self.analyse()
        return answer

    def analyse(self) -> None:
        alerts.bundle(detect.analyse(Series.objects.values_list("pk", flat=True)))

    def gate(self, head: int | str, base: str = "main") -> dict[str, Any]:
        sha = self.shas[head] if isinstance(head, int) else head
        answer = self.client.get(
            "/api/v1/projects/lab/gate", {"head": sha, "base": base}, headers=self.headers
        )
        assert answer.status_code == 200, answer.content
        found: dict[str, Any] = answer.json()
        return found

    def compare(self, base: int, head: int) -> list[dict[str, Any]]:
        params = {"base": self.shas[base], "head": self.shas[head]}
        answer = self.client.get("/api/v1/projects/lab/compare", params, headers=self.headers)
        cells: list[dict[str, Any]] = answer.json()["cells"]
        return cells

    def history(self, values: list[float], *, launches: int = 1, **metric: Any) -> None:
        """One value a commit from the first on; several launches scatter by a thousandth."""
        for index, value in enumerate(values):
            self.send(index, [run(value * (1 + 0.001 * k), **metric) for k in range(launches)])


def run(samples: float | list[float] | None, benchmark: str = "work", **extra: Any) -> dict[str, Any]:
    """A run with one metric; `unit`, `lower_is_better`, `name` and more go to the metric."""
    params, status, tier = extra.pop("params", {}), extra.pop("status", "ok"), extra.pop("tier", "micro")
    metric = {"name": "time", "unit": "ms", "lower_is_better": True} | extra
    metric["samples"] = [] if samples is None else samples if isinstance(samples, list) else [samples]
    metrics = [metric] if samples is not None or "value" in metric else []
    return {"benchmark": benchmark, "params": params, "status": status, "tier": tier, "metrics": metrics}


@pytest.fixture
def lab(client: Client, db: None) -> Lab:
    return Lab(client, commits=30)


def test_the_tool_changed_its_unit_between_runs(lab: Lab) -> None:
    lab.send(0, [run(990.0 + k, unit="us") for k in range(5)])
    lab.send(1, [run(1.01 + k / 1000, unit="ms") for k in range(5)])
    (cell,) = lab.compare(0, 1)
    assert cell["verdict"]["ratio"] == pytest.approx(1.0201, rel=0.002)
    refused = lab.send(2, [run(5.0, unit="MB")])
    assert refused.status_code == 422
    assert Run.objects.filter(commit__sha=lab.shas[2]).count() == 0


def test_baseline_in_another_unit_is_still_a_regression(lab: Lab) -> None:
    lab.send(0, [run(12.0 + k / 100, unit="us") for k in range(5)])
    lab.send(1, [run(24000.0 + k * 10, unit="ns") for k in range(5)])
    assert lab.gate(1)["decision"] == "fail"
    assert lab.gate(1)["regressions"][0]["verdict"]["ratio"] == pytest.approx(2.0, rel=0.01)


def test_one_outlier_is_no_level(lab: Lab) -> None:
    lab.history([4455.0, 5259.0, 9129.0, 4485.0], unit="ops/s", lower_is_better=False)
    assert lab.gate(3)["decision"] != "fail"
    assert not Alert.objects.filter(kind="regression").exists()


def test_one_fast_run_does_not_make_the_next_a_regression(lab: Lab) -> None:
    lab.history([100.0] * 11 + [51.0, 100.0])
    assert lab.gate(12)["decision"] != "fail"
    assert lab.gate(12)["regressions"] == []


def test_a_history_of_single_runs_still_judges(lab: Lab) -> None:
    lab.history([10.0, 10.1, 9.9, 10.05, 9.95, 10.0, 10.02, 9.98, 20.0])
    answer = lab.gate(8)
    assert answer["decision"] == "fail"
    assert answer["regressions"][0]["verdict"]["ratio"] == pytest.approx(2.0, rel=0.02)


def test_an_error_has_no_score(lab: Lab) -> None:
    lab.send(0, [run(10.0 + k / 100) for k in range(5)])
    lab.send(1, [run(None, status="error")])
    answer = lab.gate(1)
    assert answer["decision"] == "inconclusive" if not answer["broken"] else "fail"
    assert not answer["improvements"]
    assert Measurement.objects.filter(run__commit__sha=lab.shas[1], usable=True).count() == 0


def test_an_old_step_does_not_widen_the_threshold(lab: Lab) -> None:
    wobble = [0.0, 0.02, -0.02, 0.01, -0.01]
    values = [100.0] * 12 + [104.0] * 16
    for index, level in enumerate(values):
        lab.send(index, [run(level * (1 + w / 100)) for w in wobble])
    lab.send(28, [run(106.0 * (1 + w / 100)) for w in wobble])
    answer = lab.gate(28)
    assert answer["decision"] == "fail"
    assert answer["regressions"][0]["verdict"]["ratio"] == pytest.approx(106 / 104, rel=0.002)


@pytest.mark.parametrize("launches", [1, 5])
def test_all_values_equal(lab: Lab, launches: int) -> None:
    lab.history([5.0] * 6, launches=1)
    lab.send(6, [run(5.0) for _ in range(launches)])
    answer = lab.gate(6)
    assert answer["decision"] in ("pass", "inconclusive")
    assert answer["regressions"] == []


def test_a_step_between_constant_levels(lab: Lab) -> None:
    lab.history([5.0] * 10 + [6.0] * 10)
    (alert,) = Alert.objects.all()
    assert alert.bad is not None
    assert (alert.kind, alert.bad.sha) == ("regression", lab.shas[10])


def test_the_second_push_is_compared_with_the_base(lab: Lab) -> None:
    pushes = ["a" * 40, "b" * 40]
    Commit.objects.create(project=lab.project, sha=pushes[0], parents=[lab.shas[4]])
    Commit.objects.create(project=lab.project, sha=pushes[1], parents=[pushes[0]])
    lab.history([100.0] * 5, launches=5)
    for sha in pushes:
        lab.send(sha, [run(130.0 + k / 10) for k in range(5)], pull_request=3)
    answer = lab.gate(pushes[1])
    assert answer["base"]["sha"] == lab.shas[4]
    assert answer["regressions"][0]["verdict"]["ratio"] == pytest.approx(1.3, rel=0.01)


def test_a_change_is_not_credited_with_its_parents_gain(lab: Lab) -> None:
    lab.send(0, [run(100.0 + k / 10) for k in range(5)])
    lab.send(1, [run(94.0 + k / 10) for k in range(5)])
    lab.send(2, [run(94.0 + k / 10) for k in range(5)])
    answer = lab.gate(2)
    assert answer["base"]["sha"] == lab.shas[1]
    assert answer["decision"] == "pass", answer


def test_a_base_that_was_not_measured_is_named(lab: Lab) -> None:
    lab.send(0, [run(100.0 + k / 10) for k in range(5)])
    lab.send(2, [run(94.0 + k / 10) for k in range(5)])
    answer = lab.gate(2)
    assert answer["base"]["sha"] == lab.shas[0]
    assert "1 commits back" in answer["note"]


def test_unknown_units_leave_the_direction_undefined(lab: Lab) -> None:
    lab.send(0, [run(100.0 + k, unit="i/s", lower_is_better=None) for k in range(5)])
    lab.send(1, [run(200.0 + k, unit="i/s", lower_is_better=None) for k in range(5)])
    (cell,) = lab.compare(0, 1)
    assert cell["lower_is_better"] is None
    assert cell["verdict"]["outcome"] == "changed"
    assert lab.gate(1)["regressions"] == []


def test_a_metric_whose_direction_is_turned_round_is_refused(lab: Lab) -> None:
    lab.send(0, [run(100.0, unit="points", lower_is_better=False)])
    answer = lab.send(1, [run(80.0, unit="points", lower_is_better=True)])
    assert answer.status_code == 422
    assert "higher" in answer.json()["rejected"][0]["reason"]


def test_higher_is_better_falls(lab: Lab) -> None:
    lab.send(0, [run(100.0 + k / 10, unit="points", lower_is_better=False) for k in range(5)])
    lab.send(1, [run(80.0 + k / 10, unit="points", lower_is_better=False) for k in range(5)])
    assert lab.gate(1)["decision"] == "fail"


def test_nothing_measured_is_no_pass(lab: Lab) -> None:
    lab.send(0, [run(10.0)])
    empty = lab.send(1, [])
    assert empty.status_code == 422
    answer = lab.gate(1)
    assert (answer["decision"], answer["exit_code"]) == ("nothing measured", 3)


def test_ten_names_then_nine(lab: Lab) -> None:
    lab.send(0, [run(10.0 + k / 100, benchmark=f"b{i}") for i in range(10) for k in range(5)])
    lab.send(1, [run(10.0 + k / 100, benchmark=f"b{i}") for i in range(9) for k in range(5)])
    answer = lab.gate(1)
    assert answer["decision"] == "inconclusive"
    assert [cell["benchmark"] for cell in answer["missing"]] == ["b9"]


def test_four_regressions_among_a_hundred_are_named(lab: Lab) -> None:
    for commit, slow in ((0, 1.0), (1, 1.15)):
        runs = [
            run(10.0 * (slow if i < 4 else 1.0) + k / 1000, benchmark=f"b{i:02}")
            for i in range(100)
            for k in range(5)
        ]
        lab.send(commit, runs)
    answer = lab.gate(1)
    assert answer["decision"] == "fail"
    assert [cell["benchmark"] for cell in answer["regressions"]] == ["b00", "b01", "b02", "b03"]


def test_matrix_jobs_of_one_name_stay_apart(lab: Lab) -> None:
    for python, value in (("3.7", 10.0), ("3.8", 12.0)):
        lab.send(0, [run(value)], environment={"class": {"python": python}})
    assert Series.objects.count() == 2
    assert sorted(Measurement.objects.values_list("value", flat=True)) == [10.0, 12.0]


def test_one_name_twice_in_one_launch_is_refused_not_overwritten(lab: Lab) -> None:
    body = {
        "commit": {"sha": lab.shas[0]},
        "launches": [{"runs": [run(10.0), run(12.0)]}],
    }
    answer = lab.client.post(
        "/api/v1/projects/lab/uploads", json.dumps(body), content_type="application/json", headers=lab.headers
    )
    assert answer.status_code == 201
    assert "twice" in answer.json()["rejected"][0]["reason"]
    assert list(Measurement.objects.values_list("value", flat=True)) == [10.0]


def test_equal_launches_of_one_upload_are_two(lab: Lab) -> None:
    answer = lab.send(0, [run(10.0), run(10.0)])
    assert answer.json()["created"] == 2
    assert lab.send(0, [run(10.0), run(10.0)]).json()["duplicates"] == 2
    assert Run.objects.count() == 2


def test_results_without_a_commit_are_kept_out_of_the_order(lab: Lab) -> None:
    assert lab.send(None, [run(10.0)]).status_code == 201
    (measured,) = Measurement.objects.all()
    assert (measured.position, measured.commit_id) == (-1, None)
    assert lab.client.get(f"/api/v1/runs/{measured.run.uuid}", headers=lab.headers).json()["commit"] is None
    series = lab.client.get(f"/api/v1/series/{measured.series_id}", headers=lab.headers).json()
    assert series["changes"] == []


def test_a_regression_that_fell_again_stays_on_record(lab: Lab) -> None:
    lab.history([1.0] * 6 + [1.16] * 6 + [1.02] * 6, launches=3)
    regressions = Alert.objects.filter(kind="regression")
    assert [alert.bad and alert.bad.sha for alert in regressions] == [lab.shas[6]]


def test_an_impossible_value_is_refused(lab: Lab) -> None:
    answer = lab.send(0, [run(-3.1, name="mean_tpot")])
    assert answer.status_code == 422
    assert "negative" in answer.json()["rejected"][0]["reason"]


def test_no_time_at_all_is_no_improvement(lab: Lab) -> None:
    lab.send(0, [run(3.0 + k / 100, name="tpot") for k in range(5)])
    lab.send(1, [run(0.0, name="tpot") for k in range(5)])
    answer = lab.gate(1)
    assert answer["improvements"] == []
    assert answer["decision"] != "pass"


def test_failed_requests_rank_above_every_value(lab: Lab) -> None:
    """10 of 20 requests failed: the median of the rest would look unchanged."""

    def replay(good: int, failed: int) -> dict[str, Any]:
        row = run([100.0 + k / 10 for k in range(good)], name="e2e_p99", statistic="p99", tier="replay")
        row["metrics"][0]["failures"] = failed
        share = {"name": "error_rate", "unit": "ratio", "lower_is_better": True, "statistic": "rate"}
        row["metrics"].append(
            share | {"samples": [0.0] * good + [1.0] * failed, "value": failed / (good + failed)}
        )
        return row

    lab.send(0, [replay(400, 0) for _ in range(5)])
    lab.send(1, [replay(200, 200) for _ in range(5)])
    answer = lab.gate(1)
    assert answer["decision"] == "fail"
    assert {cell["metric"] for cell in answer["regressions"]} == {"e2e_p99", "error_rate"}
    assert answer["improvements"] == []


def test_an_imported_percentile_is_kept(lab: Lab) -> None:
    row = run(None, name="ttft_p99", statistic="p99", value=134.4)
    assert lab.send(0, [row]).status_code == 201
    assert Measurement.objects.get().value == 134.4


def test_too_few_requests_carry_no_tail_claim(lab: Lab) -> None:
    lab.send(0, [run([10.0 + k / 100 for k in range(10)], name="p99", statistic="p99") for _ in range(5)])
    lab.send(1, [run([13.0 + k / 100 for k in range(10)], name="p99", statistic="p99") for _ in range(5)])
    answer = lab.gate(1)
    assert answer["decision"] == "inconclusive"
    assert any(
        "too few for a p99 claim" in reason for reason in answer["inconclusive"][0]["verdict"]["reasons"]
    )


def test_results_of_both_sides_of_a_merge_are_kept(lab: Lab) -> None:
    """A merge whose first parent is the other side: what was measured on this side is not lost."""
    side = "c" * 40
    Commit.objects.create(project=lab.project, sha=side, parents=[lab.shas[0]])
    lab.send(side, [run(10.0)])
    (measured,) = Measurement.objects.all()
    assert measured.position == -1
    assert Run.objects.filter(commit__sha=side).count() == 1


def test_the_environment_is_the_runs_own(lab: Lab) -> None:
    first = {"class": {"cpu_model": "old"}, "boundary": {"driver": "1"}}
    uuid = lab.send(0, [run(10.0)], environment=first).json()["runs"][0]
    lab.send(1, [run(10.0)], environment={"class": {"cpu_model": "new"}, "boundary": {"driver": "2"}})
    shown = lab.client.get(f"/api/v1/runs/{uuid}", headers=lab.headers).json()["environment"]
    assert (shown["class"], shown["boundary"]) == (first["class"], first["boundary"])


def test_a_policy_of_five_is_no_five_percent(lab: Lab) -> None:
    from perfdb.stats.policy import Policy

    with pytest.raises(ValueError, match=r"5 % is 0\.05"):
        Policy.from_mapping({"relative_floor": 5.0})


def test_an_object_count_keeps_its_unit(lab: Lab) -> None:
    lab.send(0, [run(5400.0, unit="objects", statistic="count")])
    assert Metric.objects.get().unit == "objects"
    assert Case.objects.count() == 1
    assert Measurement.objects.get().value == 5400.0
