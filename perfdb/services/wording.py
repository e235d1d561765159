"""What messages say: subject, text and HTML of an alert, of a digest, and what chat programs may get of it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from django.template.loader import render_to_string

from perfdb.models import Alert, Change, Message
from perfdb.quantity import interval, percent, quantity
from perfdb.services import alerts, links, reproduce

SHOWN_CHANGES = 20
SHOWN_IN_DIGEST = 20
SUBJECT_LIMIT = 160
TEXT_LIMIT = 30_000
_WORDS = {
    "culprit": "culprit named: ",
    "recovered": "recovered: ",
    "missing": "no data: ",
    "broken": "broken: ",
}
_MENTION = re.compile(r"(?<![\w.])@(?=\w)")


@dataclass(frozen=True, slots=True)
class Content:
    """A message as its receiver reads it. `html` is what stands inside `mail/frame.html`."""

    subject: str
    text: str
    html: str


def one_line(text: str, limit: int = SUBJECT_LIMIT) -> str:
    """Control, format and line-separating characters become a space and the rest is cut: safe as a header."""
    plain = "".join(" " if unicodedata.category(c) in _UNPRINTED else c for c in text)
    plain = " ".join(plain.split())
    return plain if len(plain) <= limit else plain[: limit - 1].rstrip() + "…"


_UNPRINTED = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def compose(alert: Alert, changes: Sequence[Change], occasion: str) -> Content:
    """The largest changes come first; after SHOWN_CHANGES "and N more"."""
    ordered = sorted(changes, key=alerts.size, reverse=True)
    context = {
        "alert": alert,
        "changes": [_row(change) for change in ordered[:SHOWN_CHANGES]],
        "more": max(0, len(ordered) - SHOWN_CHANGES),
        "link": links.alert(alert),
        "command": reproduce.alert_command(alert, ordered[0]) if ordered else "",
        "subject_line": one_line(alert.culprit.subject, 300) if alert.culprit else "",
        "author": one_line(alert.culprit.author, 100) if alert.culprit else "",
        "conclusion": one_line(alert.conclusion, 1000),
        "title": one_line(alert.title, 500),
    }
    return Content(
        subject=_subject(alert, ordered, _WORDS.get(occasion, "")),
        text=render_to_string("mail/alert.txt", context),
        html=render_to_string("mail/alert.html", context),
    )


def _subject(alert: Alert, ordered: Sequence[Change], word: str) -> str:
    """Metric, size and commit always stand; a long case name is what is cut."""
    named = alert.culprit or alert.bad
    end = f" and {len(ordered) - 1} more" if len(ordered) > 1 else ""
    end += f" at {named.short}" if named else ""
    begin = f"[perfdb {alert.project.slug}] {word}"
    case = alert.title
    if ordered:
        change = ordered[0]
        begin += f"{one_line(change.series.metric.name, 40)} {percent(change.ratio) or 'changed'} in "
        case = change.series.case.label
    return one_line(begin + one_line(case, max(20, SUBJECT_LIMIT - len(begin) - len(end))) + end)


def _row(change: Change) -> dict[str, object]:
    unit = change.series.metric.unit
    before, after = change.verdict.get("before"), change.verdict.get("after")
    return {
        "text": one_line(alerts.describe(change), 300),
        "values": f"{quantity(before, unit)} to {quantity(after, unit)}",
        "interval": interval(change.low, change.high),
        "link": links.series(change.series),
    }


def digest(messages: Sequence[Message]) -> Content:
    """Many messages of one recipient as one; a single one as it is."""
    if len(messages) == 1:
        return Content(messages[0].subject, messages[0].text, messages[0].html)
    shown, more = messages[:SHOWN_IN_DIGEST], max(0, len(messages) - SHOWN_IN_DIGEST)
    projects = sorted({message.alert.project.slug for message in messages if message.alert})
    end = f"\nand {more} more\n" if more else ""
    return Content(
        subject=one_line(f"[perfdb {', '.join(projects)}] {len(messages)} messages of the day"),
        text=("\n" + "=" * 60 + "\n\n").join(message.text for message in shown) + end,
        html="<hr>".join(message.html for message in shown) + (f"<p>and {more} more</p>" if more else ""),
    )


def for_chat(text: str) -> str:
    """Text for a chat program: no name of a person or group in quoted text calls anybody, and it is not too long."""
    cut = text if len(text) <= TEXT_LIMIT else text[: TEXT_LIMIT - 1] + "…"
    return _MENTION.sub("@\u200b", cut)


def for_slack(text: str) -> str:
    """As `for_chat`, and `<!channel>` or `<https://...|name>` stay text (Slack: "Escaping text")."""
    return for_chat(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
