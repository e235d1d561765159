"""The two ways out: SMTP (through Django's mail settings) and webhooks. Errors are raised; `notify` judges them."""

from __future__ import annotations

import hashlib
import json
import smtplib
import urllib.error
import urllib.request
from collections.abc import Sequence
from email.mime.image import MIMEImage
from http.client import HTTPException, HTTPMessage
from typing import IO
from urllib.parse import urlsplit

from django.conf import settings
from django.core.mail import EmailMultiAlternatives
from django.template.loader import render_to_string

from perfdb.models import Alert, Message
from perfdb.services import alerts, links
from perfdb.services.picture import line_png
from perfdb.services.series import histories
from perfdb.services.wording import Content, digest, for_chat, for_slack, one_line
from perfdb.stats.median_interval import median_interval

DELIVERY_ERRORS = (OSError, smtplib.SMTPException, HTTPException, ValueError)
WEBHOOK_TIMEOUT_S = 15
PICTURED_COMMITS = 120
_PICTURE_ID = "chart@perfdb"


def temporary(error: Exception) -> bool:
    """Whether it is worth trying again: not where the other side gave a lasting no."""
    if isinstance(error, urllib.error.HTTPError):
        return error.code >= 500 or error.code in (408, 425, 429)
    if isinstance(error, smtplib.SMTPAuthenticationError):
        return True  # the operator's mistake, to be corrected
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return all(code < 500 for code, _ in error.recipients.values())
    if isinstance(error, smtplib.SMTPResponseException):
        return error.smtp_code < 500
    return not isinstance(error, ValueError)


def send(messages: Sequence[Message]) -> None:
    """Send messages of one recipient as one. Raises one of DELIVERY_ERRORS."""
    content = digest(messages)
    if messages[0].recipient.startswith(("http://", "https://")):
        _post(messages, content)
    else:
        _mail(messages, content)


class _RelatedMail(EmailMultiAlternatives):
    """A picture that belongs to the HTML part is no attachment to be listed."""

    mixed_subtype = "related"


# -- mail --------------------------------------------------------------------------------------------------
def _mail(messages: Sequence[Message], content: Content) -> None:
    first = messages[0]
    url = ""
    headers = _thread_headers(first, alone=len(messages) == 1)
    if first.subscription:
        url = links.absolute(f"/unsubscribe/{first.subscription.unsubscribe_token}/")
        headers |= {"List-Unsubscribe": f"<{url}>", "List-Unsubscribe-Post": "List-Unsubscribe=One-Click"}
    picture = _picture(first.alert) if first.alert and len(messages) == 1 else None
    frame = {"body": content.html, "picture": picture and _PICTURE_ID, "unsubscribe": url}
    mail = _RelatedMail(
        one_line(content.subject),
        f"{content.text.rstrip()}\n\n-- \nTo end these messages: {url}\n" if url else content.text,
        settings.DEFAULT_FROM_EMAIL,
        [first.recipient],
        headers=headers,
    )
    mail.attach_alternative(render_to_string("mail/frame.html", frame), "text/html")
    if picture:
        mail.attach(_inline(picture))
    mail.send()


def _thread_headers(message: Message, *, alone: bool) -> dict[str, str]:
    """One thread an alert and recipient. The id follows from the row, so that a mail sent twice by an accident
    between the server's yes and our writing it down is recognised as one."""
    domain = urlsplit(settings.BASE_URL).hostname or "localhost"
    if not alone:
        return {"Message-ID": f"<digest-{message.pk}@{domain}>"}
    who = hashlib.sha256(message.recipient.encode()).hexdigest()[:12]
    thread = f"<alert-{message.alert_id}.{who}@{domain}>"
    if message.occasion == "new":
        return {"Message-ID": thread}
    return {
        "Message-ID": f"<message-{message.pk}.{who}@{domain}>",
        "In-Reply-To": thread,
        "References": thread,
    }


def _inline(picture: bytes) -> MIMEImage:
    part = MIMEImage(picture, "png")
    part["Content-ID"] = f"<{_PICTURE_ID}>"
    part["Content-Disposition"] = 'inline; filename="chart.png"'
    return part


def _picture(alert: Alert) -> bytes | None:
    """The newest commits of the series that changed most, None where there is nothing to draw."""
    changes = list(alert.changes.filter(active=True)) or list(alert.changes.all())
    if not changes:
        return None
    change = max(changes, key=alerts.size)
    points = histories([change.series_id])[change.series_id].points[-PICTURED_COMMITS:]
    finite = [[value for value in point.values if value is not None] for point in points]
    medians = [median_interval(values).median if values else None for values in finite]
    mark = next((i for i, point in enumerate(points) if point.position >= change.bad_position), None)
    return line_png(medians, mark=mark) if len(points) > 1 else None


# -- webhooks ----------------------------------------------------------------------------------------------
class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A webhook is an address that somebody wrote down; where it points elsewhere, that is an error to show."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> None:
        return None


def _post(messages: Sequence[Message], content: Content) -> None:
    first = messages[0]
    style = first.subscription.webhook_style if first.subscription else "json"
    body: dict[str, object]
    if style == "slack":
        body = {"text": for_slack(f"{content.subject}\n{content.text}")}
    else:
        body = {
            "occasion": first.occasion if len(messages) == 1 else "digest",
            "subject": for_chat(content.subject),
            "text": for_chat(content.text),
            "alerts": [_fields(message.alert) for message in messages if message.alert],
        }
    request = urllib.request.Request(  # noqa: S310  (subscriptions hold http and https addresses only)
        first.recipient,
        json.dumps(body).encode(),
        {"Content-Type": "application/json", "User-Agent": "perfdb"},
    )
    with urllib.request.build_opener(_NoRedirect).open(request, timeout=WEBHOOK_TIMEOUT_S):
        pass


def _fields(alert: Alert) -> dict[str, object]:
    return {
        "id": alert.pk,
        "project": alert.project.slug,
        "kind": alert.kind,
        "state": alert.state,
        "title": for_chat(alert.title),
        "culprit": alert.culprit.sha if alert.culprit else None,
        "link": links.alert(alert),
    }
