"""Messages: one per (alert, recipient, occasion), claimed in the database before it is sent.

A delivery problem never changes a verdict: a failing channel is retried alone, later and later, and shown.
What is said is in `wording`, how it leaves in `sending`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import F, Q
from django.utils import timezone

from perfdb.models import Alert, AlertKind, Message, MessageState, Subscription
from perfdb.services import sending, subscribe
from perfdb.services.wording import compose, one_line

MAX_ATTEMPTS = 8
DIGEST_HOUR_UTC = 7
_SENDING_LIMIT = timedelta(minutes=5)
_TOLD = (AlertKind.REGRESSION, AlertKind.BROKEN, AlertKind.MISSING)


@transaction.atomic
def announce(alert: Alert, occasion: str) -> list[int]:
    """Make the messages of this occasion that do not exist yet; gives their ids. Improvements send nothing."""
    if alert.kind not in _TOLD:
        return []
    rows = alert.changes.select_related("series__case__benchmark", "series__metric", "series__branch")
    # Of an alert that recovered no change is active; those who heard of it hear of that too.
    changes = list(rows.filter(active=True)) or list(rows)
    content = compose(alert, changes, occasion)
    made = []
    for subscription in subscribe.interested(alert, changes):
        message, new = Message.objects.get_or_create(
            alert=alert,
            recipient=subscription.email or subscription.webhook,
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
    morning = now.replace(hour=DIGEST_HOUR_UTC, minute=0, second=0, microsecond=0)
    return morning if morning > now else morning + timedelta(days=1)


def _waiting() -> Q:
    """Messages to be sent now, those included whose sender died in the middle."""
    now = timezone.now()
    return Q(state=MessageState.PENDING, next_attempt_at__lte=now) | Q(
        state=MessageState.SENDING, next_attempt_at__lte=now - _SENDING_LIMIT
    )


def due() -> list[int]:
    """Messages to be sent now, by id."""
    return list(Message.objects.filter(_waiting()).order_by("pk").values_list("pk", flat=True))


def deliver(message_id: int) -> bool:
    """Send one message (with all that wait for the same digest) unless someone else does; True when it went out."""
    messages = _claim(message_id)
    if not messages:
        return False
    rows = Message.objects.filter(pk__in=[message.pk for message in messages])
    try:
        sending.send(messages)
    except sending.DELIVERY_ERRORS as error:
        _failed(messages, error)
        return False
    rows.update(state=MessageState.SENT, sent_at=timezone.now(), error="")
    return True


@transaction.atomic
def _claim(message_id: int) -> Sequence[Message]:
    """Take the message, and with it all that wait for the same digest; nothing where someone else has it."""
    message = Message.objects.filter(pk=message_id).select_related("subscription").first()
    if message is None:
        return []
    wanted = Q(pk=message_id)
    if message.subscription and message.subscription.digest:
        # Whoever holds the subscription's row gathers its digest alone.
        Subscription.objects.select_for_update().get(pk=message.subscription.pk)
        wanted = Q(subscription=message.subscription)
    rows = Message.objects.filter(wanted, _waiting()).select_for_update(skip_locked=True, of=("self",))
    found = list(rows.select_related("alert__project", "alert__culprit", "subscription").order_by("pk"))
    if message_id not in [row.pk for row in found]:
        return []
    Message.objects.filter(pk__in=[row.pk for row in found]).update(
        state=MessageState.SENDING, attempts=F("attempts") + 1, next_attempt_at=timezone.now()
    )
    for row in found:
        row.attempts += 1
    return _still_tried(found)


def _still_tried(found: Sequence[Message]) -> Sequence[Message]:
    """Without those whose sender died again and again."""
    given_up = [row.pk for row in found if row.attempts > MAX_ATTEMPTS]
    Message.objects.filter(pk__in=given_up).update(
        state=MessageState.FAILED, error=f"the sender died in the middle {MAX_ATTEMPTS} times"
    )
    return [row for row in found if row.attempts <= MAX_ATTEMPTS]


def _failed(messages: Sequence[Message], error: Exception) -> None:
    """Try again after 1, 2, 4 ... minutes, but not where the other side said a lasting no."""
    for message in messages:
        final = message.attempts >= MAX_ATTEMPTS or not sending.temporary(error)
        Message.objects.filter(pk=message.pk).update(
            state=MessageState.FAILED if final else MessageState.PENDING,
            error=one_line(f"{type(error).__name__}: {error}", 500),
            next_attempt_at=timezone.now() + timedelta(minutes=2 ** (message.attempts - 1)),
        )
