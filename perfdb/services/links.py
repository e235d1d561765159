"""Absolute addresses for mails, API and command line; pages are named in `perfdb.web.urls`."""

from __future__ import annotations

from django.conf import settings
from django.urls import NoReverseMatch, reverse

from perfdb.models import Alert, Bisection, Commit, Run, Series


def absolute(path: str) -> str:
    return f"{settings.BASE_URL}{path}"


def _page(name: str, fallback: str, *args: object) -> str:
    try:
        return absolute(reverse(f"web:{name}", args=args))
    except NoReverseMatch:  # an installation without pages (API only)
        return absolute(fallback)


def alert(row: Alert) -> str:
    return _page("alert", f"/alerts/{row.pk}/", row.pk)


def series(row: Series) -> str:
    return _page("series", f"/series/{row.pk}/", row.pk)


def run(row: Run) -> str:
    return _page("run", f"/runs/{row.uuid}/", row.uuid)


def bisection(row: Bisection) -> str:
    return _page("bisection", f"/bisections/{row.pk}/", row.pk)


def commit(row: Commit) -> str:
    return _page("commit", f"/projects/{row.project.slug}/commits/{row.sha}/", row.project.slug, row.sha)
