"""Who hears of what."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from fnmatch import fnmatchcase

from django.core.validators import URLValidator, validate_email

from perfdb.models import Alert, Change, Project, Subscription


def subscribe(
    project: Project,
    *,
    email: str = "",
    webhook: str = "",
    webhook_style: str = "json",
    benchmark_pattern: str = "",
    metric_pattern: str = "",
    only_blocking: bool = False,
    digest: bool = False,
) -> Subscription:
    """Make or change the subscription of this address. Raises django.core.exceptions.ValidationError for a bad one."""
    if bool(email) == bool(webhook):
        raise ValueError("give either an e-mail address or a webhook")
    if email:
        validate_email(email)
    else:
        URLValidator(schemes=["http", "https"])(webhook)
    row, _ = Subscription.objects.update_or_create(
        project=project,
        email=email,
        webhook=webhook,
        defaults={
            "webhook_style": webhook_style,
            "benchmark_pattern": benchmark_pattern,
            "metric_pattern": metric_pattern,
            "only_blocking": only_blocking,
            "digest": digest,
            "active": True,
        },
        create_defaults={
            "webhook_style": webhook_style,
            "benchmark_pattern": benchmark_pattern,
            "metric_pattern": metric_pattern,
            "only_blocking": only_blocking,
            "digest": digest,
            "unsubscribe_token": secrets.token_urlsafe(32),
        },
    )
    return row


def unsubscribe(token: str) -> bool:
    """End the subscription with this token (from a mail's List-Unsubscribe); False for an unknown one."""
    return Subscription.objects.filter(unsubscribe_token=token, active=True).update(active=False) == 1


def interested(alert: Alert, changes: Iterable[Change]) -> list[Subscription]:
    """Active subscriptions of the alert's project whose filters match any of its changes."""
    members = [(change.series.case.label, change.series.metric.name) for change in changes]
    rows = Subscription.objects.filter(project=alert.project, active=True)
    return [row for row in rows if _matches(row, alert, members)]


def _matches(row: Subscription, alert: Alert, members: list[tuple[str, str]]) -> bool:
    if row.only_blocking and not alert.blocking:
        return False
    if not members:
        return not row.benchmark_pattern and not row.metric_pattern
    benchmark, name = row.benchmark_pattern or "*", row.metric_pattern or "*"
    return any(fnmatchcase(case, benchmark) and fnmatchcase(metric, name) for case, metric in members)
