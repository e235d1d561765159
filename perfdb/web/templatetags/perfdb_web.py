"""Template filters: thin names for `perfdb.web.format`."""

from __future__ import annotations

from typing import Any

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

from perfdb import quantity as numbers
from perfdb.web import format as formatting

register = template.Library()
register.filter("percent", numbers.percent)
register.filter("duration", formatting.duration)
register.filter("recipient", formatting.recipient)
register.filter("without_credentials", formatting.without_credentials)
register.filter("probability", formatting.probability)


@register.filter
def quantity(value: float | str | None, unit: str) -> str:
    """Nothing for a field that is not there at all (templates give an empty text for it)."""
    if isinstance(value, str):
        return ""
    return numbers.quantity(value, unit)


@register.filter
def interval(change: Any) -> str:
    """Of anything with `low` and `high`, or a mapping with them."""
    if isinstance(change, dict):
        return numbers.interval(change.get("low"), change.get("high"))
    return numbers.interval(getattr(change, "low", None), getattr(change, "high", None))


@register.filter
def badge(name: Any) -> SafeString:
    """An outcome or state as a coloured word with its sign."""
    sign, word = formatting.outcome(str(name))
    return format_html(
        '<span class="badge is-{}"><i aria-hidden="true">{}</i> {}</span>', str(name) or "none", sign, word
    )


@register.filter
def state(name: Any) -> SafeString:
    text = str(name)
    return format_html('<span class="badge state is-{}">{}</span>', text, text.replace("_", " "))


@register.simple_tag
def spark(values: list[float | None], outcome: str = "") -> SafeString:
    """A small line of values; a gap where there is none."""
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return SafeString("")
    low, high = min(known), max(known)
    span = (high - low) or 1.0
    width, height = 120, 26
    points = [
        f"{2 + (width - 4) * i / (len(values) - 1):.1f},{2 + (height - 4) * (1 - (value - low) / span):.1f}"
        for i, value in enumerate(values)
        if value is not None
    ]
    return format_html(
        '<svg class="spark is-{}" viewBox="0 0 {} {}" width="{}" height="{}" aria-hidden="true">'
        '<polyline points="{}"/></svg>',
        outcome or "none", width, height, width, height, " ".join(points),
    )  # fmt: skip
