"""Chart data as plotly takes it: typed arrays in base64, drawn by static/perfdb/charts.js."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
from django.urls import reverse

from perfdb.models import Change, Commit, Probe, Series
from perfdb.quantity import quantity, readable
from perfdb.services.decimate import thin
from perfdb.services.series import History, Point
from perfdb.stats.median_interval import median_interval

MAX_POINTS = 2000


def typed(values: Sequence[float | None] | np.ndarray[Any, Any], *, dtype: str = "f4") -> dict[str, str]:
    """A typed array for plotly; None becomes NaN, which it leaves out."""
    array = np.array([np.nan if v is None else v for v in values], dtype=f"<{dtype}")
    return {"dtype": dtype, "bdata": base64.b64encode(array.tobytes()).decode()}


def _times(factor: float, values: Sequence[float | None]) -> list[float | None]:
    return [None if value is None else factor * value for value in values]


def series_chart(series: Series, history: History, changes: Sequence[Change]) -> dict[str, Any]:
    """Per commit the median of the launch values with its interval; launches; changes; environment boundaries."""
    points = thin(history.points, MAX_POINTS)
    slug = series.case.benchmark.project.slug
    facts = Commit.objects.only("sha", "subject").in_bulk([point.commit_id for point in points])
    rows = [_interval(point) for point in points]
    launches = [(point.position, value) for point in points for value in point.values if value is not None]
    known = [row[0] for row in rows if row[0] is not None]
    factor, unit = readable(np.median(known).item() if known else None, series.metric.unit)
    shown = launches[:: max(1, -(-len(launches) // MAX_POINTS))]
    return {
        "unit": unit,
        "name": f"{series.case.label} {series.metric.name}",
        "lower_is_better": series.metric.lower_is_better,
        "position": typed([point.position for point in points], dtype="i4"),
        "median": typed(_times(factor, [row[0] for row in rows])),
        "above": typed(_times(factor, [row[2] for row in rows])),
        "below": typed(_times(factor, [row[1] for row in rows])),
        "text": [
            _hover(point, row[0], series.metric.unit, facts.get(point.commit_id))
            for point, row in zip(points, rows, strict=True)
        ],
        "links": [_link(slug, facts.get(point.commit_id)) for point in points],
        "launch_position": typed([position for position, _ in shown], dtype="i4"),
        "launch_value": typed(_times(factor, [value for _, value in shown])),
        "failed": [point.position for point in points if any(value is None for value in point.values)],
        "unusable": [point.position for point in points if point.unusable and not point.values],
        "changes": [
            {
                "at": change.bad_position,
                "good": change.good_position,
                "end": change.end_position,
                "kind": change.kind,
                "direction": change.direction,
            }
            for change in changes
        ],
        "boundaries": boundaries(history),
        "thinned": len(points) < len(history.points),
    }  # fmt: skip


def boundaries(history: History) -> list[int]:
    """Positions where no environment of the commit before measured."""
    out = []
    for before, after in zip(history.points, history.points[1:], strict=False):
        if not (before.environments & after.environments):
            out.append(after.position)
    return out


def centre(point: Point) -> float | None:
    """The median of a point's finite launch values, None where there is none."""
    return _interval(point)[0]


def _interval(point: Point) -> tuple[float | None, float | None, float | None]:
    """(median, distance down, distance up) of the launch values, None where nothing finite was measured."""
    finite = [value for value in point.values if value is not None]
    if not finite:
        return None, None, None
    found = median_interval(finite)
    return found.median, found.median - found.low, found.high - found.median


def _hover(point: Point, median: float | None, unit: str, commit: Commit | None) -> str:
    head = f"{commit.sha[:10]} {commit.subject[:70]}" if commit else "unknown commit"
    launches = f"{len(point.values)} launch{'es' if len(point.values) != 1 else ''}"
    bad = f", {point.unusable} not usable" if point.unusable else ""
    return f"{_escape(head)}<br>{quantity(median, unit)} ({launches}{bad})"


def _link(slug: str, commit: Commit | None) -> str:
    return reverse("web:commit", args=[slug, commit.sha]) if commit else ""


def _escape(text: str) -> str:
    """Plotly reads a few tags in hover texts."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def samples_chart(values: Sequence[float], unit: str, name: str) -> dict[str, Any]:
    """At most MAX_POINTS samples to draw; the histogram counts all of them."""
    step = max(1, -(-len(values) // MAX_POINTS))
    factor, unit = readable(np.median(values).item(), unit)
    scaled = factor * np.asarray(values)
    counts, edges = np.histogram(scaled, bins=min(60, max(5, round(len(values) ** 0.5))))
    return {
        "name": name,
        "unit": unit,
        "index": typed(range(0, len(values), step), dtype="i4"),
        "values": typed(scaled[::step]),
        "counts": typed(counts, dtype="i4"),
        "middles": typed((edges[:-1] + edges[1:]) / 2),
        "n": len(values),
        "thinned": step > 1,
    }


def bisection_chart(
    shas: Sequence[str], answer: dict[str, Any], probes: Sequence[Probe], *, unit: str
) -> dict[str, Any]:
    known = [value for probe in probes for value in probe.values or ()]
    factor, unit = readable(np.median(known).item() if known else None, unit)
    posterior = (answer.get("posterior") or {}).get("commits") or []
    return {
        "unit": unit,
        "shas": [sha[:10] for sha in shas],
        "posterior": list(posterior),
        "probes": [
            {
                "index": p.index,
                "values": [factor * value for value in p.values or ()],
                "unbuildable": p.unbuildable,
                "observed": p.observed,
            }
            for p in probes
        ],
    }
