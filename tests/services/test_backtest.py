"""A draft policy is scored against what became of past alerts."""

from __future__ import annotations

import pytest

from perfdb.models import Alert, Bisection, PolicyVersion, Run
from perfdb.services import alerts, bisection, detect
from perfdb.services.backtest import score
from tests.services.bisection_lab import BEFORE, Lab, straight

pytestmark = pytest.mark.django_db


@pytest.fixture
def lab() -> Lab:
    """One step of 8 % and one of 40 %, each measured and made an alert; the small one was judged to be noise."""
    levels = [10.0] * 6 + [10.8] * 12 + [15.0] * 12
    lab = straight(levels)
    for sha in lab.branch.places.order_by("position").values_list("commit__sha", flat=True)[BEFORE - 3 :]:
        lab.measure(sha, 4)
    alerts.bundle(detect.analyse([lab.series.pk]))
    small, large = Alert.objects.filter(kind="regression").order_by("bad_position")
    alerts.move(small, "invalid", who="someone")
    alerts.move(large, "fixed", who="someone")
    return lab


def draft(lab: Lab, **values: float) -> PolicyVersion:
    return PolicyVersion(project=lab.project, values=values)


def test_the_policy_that_stands_fires_on_both(lab: Lab) -> None:
    found = score(draft(lab))
    assert [one.fires for one in found.alerts] == [True, True]
    assert (found.precision, found.recall, found.unseen) == (0.5, 1.0, ())


def test_higher_floor_drops_the_false_one_and_keeps_the_real_one(lab: Lab) -> None:
    found = score(draft(lab, relative_floor=0.2))
    assert [one.fires for one in found.alerts] == [False, True]
    assert (found.precision, found.recall) == (1.0, 1.0)
    assert not PolicyVersion.objects.exists()


def test_floor_above_everything_has_no_precision_and_no_recall(lab: Lab) -> None:
    found = score(draft(lab, relative_floor=0.9))
    assert (found.precision, found.recall) == (None, 0.0)
    assert found.gpu_seconds == 0.0


def test_undecided_alerts_do_not_count(lab: Lab) -> None:
    for alert in Alert.objects.all():
        alerts.move(alert, "investigating", who="someone")
    found = score(draft(lab))
    assert (found.precision, found.recall) == (None, None)


def test_cost_is_that_of_the_probes(lab: Lab) -> None:
    large = Alert.objects.get(state="fixed")
    started = bisection.start_for_alert(large)
    assert started is not None
    lab.run(started)
    assert Bisection.objects.get().state == "done"
    probes = Run.objects.filter(launch__job__kind="probe")
    assert probes.update(duration_s=2.0) > 0
    assert score(draft(lab, relative_floor=0.2)).gpu_seconds == 2.0 * probes.count()
    silent = score(draft(lab, relative_floor=0.9))
    assert (silent.gpu_seconds, silent.all_gpu_seconds) == (0.0, 2.0 * probes.count())
