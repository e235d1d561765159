"""How pages word outcomes, probabilities and durations; numbers with units are `perfdb.quantity`'s."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from perfdb.quantity import quantity


def probability(value: float | None) -> str:
    """Three digits, and never a certainty: no search of measurements ends with one."""
    if value is None:
        return ""
    if 0 < value < 0.0005:
        return "< 0.001"
    return "> 0.999" if value >= 0.9995 else f"{value:.3f}"


def recipient(address: str) -> str:
    """A webhook without its path, which is a secret (whoever knows it may post); an e-mail address as it is."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.hostname}/…" if parts.scheme in ("http", "https") else address


def without_credentials(text: str) -> str:
    """Addresses of repositories in `text` without `user:secret@`."""
    return re.sub(r"(?<=://)[^/\s@]+@", "", text)


def duration(seconds: float | None) -> str:
    """`3 min 20 s`, `850 ms`."""
    if seconds is None:
        return ""
    if seconds < 60:
        return quantity(seconds, "s")
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


OUTCOMES = {
    "regressed": ("▲", "regressed"),
    "improved": ("▼", "improved"),
    "same": ("=", "same"),
    "inconclusive": ("?", "inconclusive"),
    "invalid": ("⊘", "invalid"),
    "changed": ("◆", "changed"),
    "": ("·", "not judged"),
}


def outcome(name: str) -> tuple[str, str]:
    """Sign and word of an outcome: colour is never the only sign."""
    return OUTCOMES.get(name, ("·", name))
