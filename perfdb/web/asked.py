"""What a visitor typed, as text that the database takes."""

from __future__ import annotations

from django.http import QueryDict


def text(values: QueryDict, name: str, default: str = "", *, limit: int = 200) -> str:
    """The field without surrounding space, cut, and without NUL, which PostgreSQL refuses."""
    return values.get(name, default).replace("\0", "").strip()[:limit]
