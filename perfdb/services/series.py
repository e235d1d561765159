"""A series as the statistics take it: launch values per commit, in position order, gaps kept."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.db import connection

from perfdb.models import Series


@dataclass(frozen=True, slots=True)
class Point:
    """One commit of a series: the values of its usable launches, what failed, and where it ran.

    values: launch values in the metric's unit; None ranks as +infinity. invalid: launches marked or found invalid.
    """

    position: int
    commit_id: int
    values: tuple[float | None, ...]
    mhz: tuple[float | None, ...]
    environments: frozenset[int]
    unusable: int


@dataclass(frozen=True, slots=True)
class History:
    """All placed points of one series, oldest first."""

    series_id: int
    points: tuple[Point, ...]

    @property
    def positions(self) -> list[int]:
        return [point.position for point in self.points]

    def at(self, position: int) -> Point | None:
        return next((point for point in self.points if point.position == position), None)

    def dense(self) -> tuple[int, list[list[float] | None]]:
        """(first position, launch values per position): None for a commit that has no usable finite value."""
        if not self.points:
            return 0, []
        first, last = self.points[0].position, self.points[-1].position
        rows: list[list[float] | None] = [None] * (last - first + 1)
        for point in self.points:
            finite = [value for value in point.values if value is not None]
            rows[point.position - first] = finite or None
        return first, rows


_QUERY = """
SELECT series_id, position, min(commit_id),
       array_agg(value ORDER BY run_id) FILTER (WHERE usable AND (n > 0 OR failures > 0 OR value IS NOT NULL)),
       array_agg(mhz ORDER BY run_id) FILTER (WHERE usable AND (n > 0 OR failures > 0 OR value IS NOT NULL)),
       array_agg(DISTINCT environment_id),
       count(*) FILTER (WHERE NOT usable)
FROM perfdb_measurement
WHERE series_id = ANY(%s) AND position >= %s
GROUP BY series_id, position
ORDER BY series_id, position
"""


def histories(series_ids: Iterable[int], *, since: int = 0) -> dict[int, History]:
    """Histories of many series in one query; a series without a placed measurement has no points."""
    wanted = list(series_ids)
    points: dict[int, list[Point]] = {series_id: [] for series_id in wanted}
    with connection.cursor() as cursor:
        cursor.execute(_QUERY, [wanted, since])
        for series_id, position, commit_id, values, mhz, environments, unusable in cursor.fetchall():
            points[series_id].append(
                Point(
                    position,
                    commit_id,
                    tuple(values or ()),
                    tuple(mhz or ()),
                    frozenset(environments),
                    unusable,
                )
            )
    return {series_id: History(series_id, tuple(rows)) for series_id, rows in points.items()}


def history(series: Series) -> History:
    return histories([series.pk])[series.pk]
