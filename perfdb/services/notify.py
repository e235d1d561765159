"""Messages: one per (alert, recipient, occasion), claimed in the database before it is sent.

A delivery problem never changes a verdict: a failing channel is retried alone, later and later, and shown.
"""

from __future__ import annotations

import json
import re
import smtplib
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from email.utils import make_msgid
from urllib.parse import urlsplit

from django.conf import settings
from django.core.mail import EmailMultiAlternatives
from django.db import transaction
from django.db.models import F, Q
from django.template.loader import render_to_string
from django.utils import timezone

from perfdb.models import Alert, AlertKind, Change, Message, MessageState, Subscription
from perfdb.services import alerts, links, reproduce, subscribe

MAX_ATTEMPTS = 8
SHOWN_CHANGES = 20
SUBJECT_LIMIT = 160
OCCASIONS = ("new", "culprit", "recovered", "missing", "broken")
_SENDING_LIMIT = timedelta(minutes=5)
_WEBHOOK_TIMEOUT_S = 15
_CONTROL = re.compile(r"[\x00-\x1f\x7f\u0085\u2028\u2029]+")


@dataclass(frozen=True, slots=True)
class Content:
    """A message as its receiver reads it."""

    subject: str
    text: str
    html: str


@transaction.atomic
def announce(alert: Alert, occasion: str) -> list[int]:
    """Make the messages of this occasion that do not exist yet; gives their ids. Improvements send nothing."""
    if alert.kind not in (AlertKind.REGRESSION, AlertKind.BROKEN, AlertKind.MISSING):
        return []
    changes = list(
        alert.changes.filter(active=True).select_related(
            "series__case__benchmark", "series__metric", "series__branch"
        )
    )
    made = []
    for subscription in subscribe.interested(alert, changes):
        recipient = subscription.email or subscription.webhook
        content = compose(alert, changes, occasion, subscription)
        message, new = Message.objects.get_or_create(
            alert=alert,
            recipient=recipient,
            occasion=occasion,
            defaults={
                "subscription": subscription,
                "subject": content.subject,
                "text": content.text,
                "html": content.html,
                "next_attempt_at": _due(subscription),
            },
        )
        if new:
            made.append(message.pk)
    return made


def _due(subscription: Subscription) -> datetime:
    """Now, or the next morning for a digest."""
    now = timezone.now()
    if not subscription.digest:
        return now
    morning = now.replace(hour=7, minute=0, second=0, microsecond=0)
    return morning if morning > now else morning + timedelta(days=1)


# -- content -----------------------------------------------------------------------------------------------
def one_line(text: str, limit: int = SUBJECT_LIMIT) -> str:
    """Control characters become a space and the rest is cut: safe as a header of its own."""
    plain = _CONTROL.sub(" ", text).strip()
    return plain if len(plain) <= limit else plain[: limit - 1].rstrip() + "…"


def compose(alert: Alert, changes: Sequence[Change], occasion: str, subscription: Subscription) -> Content:
    """Subject, text and HTML. The largest changes come first; after SHOWN_CHANGES "and N more"."""
    ordered = sorted(changes, key=alerts.size, reverse=True)
    named = alert.culprit or alert.bad
    at = f" at {named.short}" if named else ""
    word = {"culprit": "culprit named", "recovered": "recovered", "missing": "no data"}.get(occasion, "")
    head = f"[perfdb {alert.project.slug}] {word + ': ' if word else ''}"
    context = {
        "alert": alert,
        "occasion": occasion,
        "changes": [_row(change) for change in ordered[:SHOWN_CHANGES]],
        "more": max(0, len(ordered) - SHOWN_CHANGES),
        "link": links.alert(alert),
        "command": reproduce.alert_command(alert, ordered[0]) if ordered else "",
        "unsubscribe": links.absolute(f"/unsubscribe/{subscription.unsubscribe_token}/"),
    }
    return Content(
        subject=one_line(f"{head}{alert.title}{at}"),
        text=render_to_string("mail/alert.txt", context),
        html=render_to_string("mail/alert.html", context),
    )


def _row(change: Change) -> dict[str, object]:
    interval = ""
    if change.low and change.high:
        interval = f"{100 * (change.low - 1):+.1f} % to {100 * (change.high - 1):+.1f} %"
    return {"text": alerts.describe(change), "interval": interval, "link": links.series(change.series)}


# -- delivery ----------------------------------------------------------------------------------------------
def due() -> list[int]:
    """Messages to be sent now, those included whose sender died in the middle."""
    now = timezone.now()
    rows = Message.objects.filter(
        Q(state=MessageState.PENDING, next_attempt_at__lte=now)
        | Q(state=MessageState.SENDING, next_attempt_at__lte=now - _SENDING_LIMIT)
    )
    return list(rows.order_by("pk").values_list("pk", flat=True))


def deliver(message_id: int) -> bool:
    """Send one message unless someone else does; True when it went out now."""
    now = timezone.now()
    claimed = (
        Message.objects.filter(pk=message_id)
        .filter(
            Q(state=MessageState.PENDING, next_attempt_at__lte=now)
            | Q(state=MessageState.SENDING, next_attempt_at__lte=now - _SENDING_LIMIT)
        )
        .update(state=MessageState.SENDING, attempts=F("attempts") + 1, next_attempt_at=now)
    )
    if claimed != 1:
        return False
    message = Message.objects.select_related("alert__project", "subscription").get(pk=message_id)
    try:
        if message.recipient.startswith(("http://", "https://")):
            _post(message)
        else:
            _mail(message)
    except (OSError, smtplib.SMTPException, ValueError) as error:
        _failed(message, error)
        return False
    Message.objects.filter(pk=message_id).update(state=MessageState.SENT, sent_at=timezone.now(), error="")
    return True


def _failed(message: Message, error: Exception) -> None:
    """Try again after 1, 2, 4 ... minutes, but not where the other side said a lasting no."""
    final = message.attempts >= MAX_ATTEMPTS or not _temporary(error)
    Message.objects.filter(pk=message.pk).update(
        state=MessageState.FAILED if final else MessageState.PENDING,
        error=one_line(f"{type(error).__name__}: {error}", 500),
        next_attempt_at=timezone.now() + timedelta(minutes=2 ** (message.attempts - 1)),
    )


def _temporary(error: Exception) -> bool:
    if isinstance(error, urllib.error.HTTPError):
        return error.code >= 500 or error.code in (408, 429)
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return all(code < 500 for code, _ in error.recipients.values())
    if isinstance(error, smtplib.SMTPResponseException):
        return error.smtp_code < 500
    return not isinstance(error, ValueError)


def _mail(message: Message) -> None:
    domain = urlsplit(settings.BASE_URL).hostname or "localhost"
    thread = f"<alert-{message.alert_id}@{domain}>"
    headers = {"Message-ID": thread if message.occasion == "new" else make_msgid(domain=domain)}
    if message.occasion != "new":
        headers |= {"In-Reply-To": thread, "References": thread}
    if message.subscription:
        url = links.absolute(f"/unsubscribe/{message.subscription.unsubscribe_token}/")
        headers |= {"List-Unsubscribe": f"<{url}>", "List-Unsubscribe-Post": "List-Unsubscribe=One-Click"}
    mail = EmailMultiAlternatives(
        one_line(message.subject),
        message.text,
        settings.DEFAULT_FROM_EMAIL,
        [message.recipient],
        headers=headers,
    )
    mail.attach_alternative(message.html, "text/html")
    mail.send()


def _post(message: Message) -> None:
    style = message.subscription.webhook_style if message.subscription else "json"
    body: dict[str, object] = {"text": f"{message.subject}\n{message.text}"}
    if style == "json":
        alert = message.alert
        body = {
            "occasion": message.occasion,
            "subject": message.subject,
            "text": message.text,
            "project": alert.project.slug if alert else None,
            "alert": alert.pk if alert else None,
            "link": links.alert(alert) if alert else None,
        }
    request = urllib.request.Request(  # noqa: S310  (subscriptions hold http and https addresses only)
        message.recipient, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=_WEBHOOK_TIMEOUT_S):  # noqa: S310  (as above)
        pass
