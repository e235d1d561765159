"""Fewer points for a drawing: the extremes of each stretch are kept, so that no spike and no step disappears."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from perfdb.services.series import Point


def thin(points: Sequence[Point], limit: int) -> tuple[Point, ...]:
    """At most about `limit` points, first and last among them: of each stretch its lowest and its highest."""
    if len(points) <= limit:
        return tuple(points)
    inner = points[1:-1]
    stretches = max(1, (limit - 2) // 2)
    kept = [points[0]]
    for number in range(stretches):
        begin, end = number * len(inner) // stretches, (number + 1) * len(inner) // stretches
        stretch = inner[begin:end]
        if stretch:
            ends = {min(stretch, key=_height).position, max(stretch, key=_height).position}
            kept.extend(point for point in stretch if point.position in ends)
    return (*kept, points[-1])


def _height(point: Point) -> float:
    finite = [value for value in point.values if value is not None]
    return median(finite) if finite else float("inf")
