"""Messages over a real SMTP server and a real HTTP server: content, headers, exactly once, retries, digests."""

from __future__ import annotations

import json
import socket
import struct
import threading
import zlib
from collections.abc import Iterator
from datetime import timedelta
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default as modern
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from django.core.exceptions import ValidationError
from django.db import connection
from django.utils import timezone
from pytest_django import Settings

from perfdb.models import (
    Alert,
    AlertEvent,
    Change,
    Commit,
    Message,
    MessageState,
    Project,
    Series,
    Subscription,
)
from perfdb.services import alerts, notify, subscribe
from perfdb.services.ingest import ingest
from perfdb.services.picture import HEIGHT, WIDTH, line_png
from perfdb.services.wording import SUBJECT_LIMIT, for_chat, for_slack, one_line
from perfdb.tasks import tell
from tests.web.data import Cell, batch, make_project, sha

HOSTILE_SUBJECT = "Speed up\r\nBcc: eve@example.invalid\r\n\r\n<b>bold</b> thanks @someone <!channel> größer"
MAIL_DOWN = 1


class Inbox:
    """A real SMTP server that keeps what it gets; `answers` are replies to RCPT, the last one for ever after."""

    def __init__(self) -> None:
        self.raw: list[bytes] = []
        self.recipients: list[list[str]] = []
        self.answers = ["250 OK"]

    async def handle_RCPT(  # noqa: N802  (aiosmtpd's name)
        self, server: Any, session: Any, envelope: Any, address: str, options: Any
    ) -> str:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer.startswith("250"):
            envelope.rcpt_tos.append(address)
        return answer

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802  (as above)
        self.raw.append(envelope.content)
        self.recipients.append(list(envelope.rcpt_tos))
        return "250 OK"

    def mails(self) -> list[EmailMessage]:
        return [message_from_bytes(raw, policy=modern) for raw in self.raw]  # type: ignore[misc]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def inbox(settings: Settings) -> Iterator[Inbox]:
    kept = Inbox()
    server = Controller(kept, hostname="127.0.0.1", port=free_port())
    server.start()
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST = "127.0.0.1"
    settings.EMAIL_PORT = server.port
    settings.BASE_URL = "https://perf.example.org"
    yield kept
    server.stop()


class Hook:
    """A real HTTP server that keeps what is posted; `codes` are its answers, the last one for ever after."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.codes = [200]
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                code = hook.codes.pop(0) if len(hook.codes) > 1 else hook.codes[0]
                if code == 200:
                    hook.bodies.append(json.loads(body))
                self.send_response(code)
                if 300 <= code < 400:
                    self.send_header("Location", hook.url)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()


@pytest.fixture
def hook() -> Iterator[Hook]:
    made = Hook()
    yield made
    made.server.shutdown()
    made.server.server_close()
    made.thread.join()


def series_of(project: Project, cells: list[Cell]) -> list[Series]:
    for index in range(6 if len(cells) < 100 else 1):
        assert not ingest(project, batch(index, cells, seed=index, launches=2)).rejected
    return list(
        Series.objects.filter(case__benchmark__project=project).select_related("case__benchmark", "metric")
    )


def make_alert(project: Project, series: list[Series], *, ratio: float = 1.31) -> Alert:
    bad = Commit.objects.get(project=project, sha=sha(4))
    alert = Alert.objects.create(
        project=project, branch=series[0].branch, kind="regression", title="", good_position=3, bad_position=4,
        good=Commit.objects.get(project=project, sha=sha(3)), bad=bad, culprit=bad, culprit_probability=0.98,
    )  # fmt: skip
    Change.objects.bulk_create(
        Change(series=row, alert=alert, kind="step", good_position=3, bad_position=4, ratio=ratio + number / 1e6,
               low=ratio - 0.02, high=ratio + 0.02, direction="regressed", verdict={"before": 41e-6, "after": 53.7e-6})
        for number, row in enumerate(series)
    )  # fmt: skip
    rows = list(alert.changes.select_related("series__case__benchmark", "series__metric"))
    alert.title = alerts.title(alert, rows)
    alert.save()
    return alert


def new_alert(cells: list[Cell] | None = None, slug: str = "lab") -> Alert:
    project = make_project(slug, 6)
    cells = cells or [Cell("softmax", {"n": 4096}, "ttft_p99", "s", 41e-6, at=4, step=1.31)]
    return make_alert(project, series_of(project, cells))


def tell_all(alert: Alert, occasion: str = "new") -> list[bool]:
    return [notify.deliver(pk) for pk in notify.announce(alert, occasion)]


def later(minutes: float) -> None:
    """Let time pass for all messages."""
    for message in Message.objects.all():
        Message.objects.filter(pk=message.pk).update(
            next_attempt_at=message.next_attempt_at - timedelta(minutes=minutes)  # type: ignore[operator]
        )


# -- content -----------------------------------------------------------------------------------------------
@pytest.mark.django_db
def test_a_mail_says_what_where_how_much_and_how_to_repeat_it(inbox: Inbox) -> None:
    alert = new_alert()
    row = subscribe.subscribe(alert.project, email="ann@example.org")
    assert tell_all(alert) == [True]
    (mail,) = inbox.mails()
    assert mail["Subject"].strip() == f"[perfdb lab] ttft_p99 +31.0 % in softmax[n=4096] at {sha(4)[:10]}"
    assert mail["To"] == "ann@example.org"
    unsubscribe = f"https://perf.example.org/unsubscribe/{row.unsubscribe_token}/"
    assert mail["List-Unsubscribe"].strip() == f"<{unsubscribe}>"
    assert mail["List-Unsubscribe-Post"] == "List-Unsubscribe=One-Click"
    text = mail.get_body(("plain",)).get_content()  # type: ignore[union-attr]
    for part in ("41 us to 53.70 us", "+29.0 % to +33.0 %", sha(4), "Ada Lin", unsubscribe,
                 f"https://perf.example.org/alerts/{alert.pk}/", f"--head-commit {sha(4)}"):  # fmt: skip
        assert part in text, part
    assert mail.get_content_type() == "multipart/related"
    page = mail.get_body(("html",)).get_content()  # type: ignore[union-attr]
    (picture,) = [part for part in mail.walk() if part.get_content_type() == "image/png"]
    assert f"cid:{picture['Content-ID'].strip('<>')}" in page
    assert picture.get_content()[:8] == b"\x89PNG\r\n\x1a\n"
    # Whoever reads the stored message must not be able to end another's subscription.
    assert row.unsubscribe_token not in Message.objects.get().text + Message.objects.get().html


def test_the_picture_is_a_png_that_shows_the_step() -> None:
    data = line_png([1.0, 1.0, None, 1.0, 2.0, 2.0], mark=4)
    assert struct.unpack(">II", data[16:24]) == (WIDTH, HEIGHT)
    at, chunks = 8, {}
    while at < len(data):
        (size,) = struct.unpack(">I", data[at : at + 4])
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + size]
        assert struct.unpack(">I", data[at + 8 + size : at + 12 + size])[0] == zlib.crc32(kind + body)
        chunks[kind] = body
        at += 12 + size
    pixels = zlib.decompress(chunks[b"IDAT"])
    rows = [pixels[y * (1 + 3 * WIDTH) + 1 : (y + 1) * (1 + 3 * WIDTH)] for y in range(HEIGHT)]
    blue = bytes((36, 86, 200))
    assert rows[HEIGHT - 8][3 * 20 : 3 * 20 + 3] == blue
    assert rows[8][3 * (WIDTH - 20) : 3 * (WIDTH - 20) + 3] == blue
    assert len(line_png([])) > 50
    assert len(line_png([None, 5.0])) > 50


@pytest.mark.django_db
def test_headers_survive_hostile_long_and_foreign_text(inbox: Inbox) -> None:
    """A newline in a name, 300 characters and non-ASCII: one header line each, nothing added, read back whole."""
    name = "attention\r\nBcc: eve@example.invalid\u2028" + "x" * 300 + " größer \u202e日本"
    alert = new_alert([Cell(name, {}, "zeit_größe", "s", 1.0)])
    Commit.objects.update(subject=HOSTILE_SUBJECT, author="Eve\nX-Evil: 1")
    subscribe.subscribe(alert.project, email="ann@example.org")
    assert tell_all(Alert.objects.get(pk=alert.pk)) == [True]
    (mail,) = inbox.mails()
    raw_head = inbox.raw[0].split(b"\r\n\r\n")[0]
    assert mail["Bcc"] is None
    assert mail["X-Evil"] is None
    assert inbox.recipients == [["ann@example.org"]]
    assert all(len(line) < 200 for line in raw_head.splitlines())
    subject = mail["Subject"].strip()
    assert "\n" not in subject
    assert len(subject) <= SUBJECT_LIMIT
    assert subject.startswith("[perfdb lab] zeit_größe +31.0 % in attention Bcc: eve@example.invalid xxx")
    assert subject.endswith(f"… at {sha(4)[:10]}")
    page = mail.get_body(("html",)).get_content()  # type: ignore[union-attr]
    assert "<b>bold</b>" not in page
    assert "&lt;b&gt;bold" in page


def test_one_line() -> None:
    assert one_line("a\r\nb\x00c\u2028d\u202ee\ud800f") == "a b c d e f"
    assert one_line("x" * 500, 10) == "x" * 9 + "…"
    assert one_line("  ") == ""


@pytest.mark.django_db
def test_two_thousand_benchmarks_are_one_short_mail(inbox: Inbox) -> None:
    alert = new_alert([Cell(f"op_{number:04d}", {}, "time", "s", 1.0) for number in range(2000)])
    subscribe.subscribe(alert.project, email="ann@example.org")
    assert tell_all(alert) == [True]
    (mail,) = inbox.mails()
    text = mail.get_body(("plain",)).get_content()  # type: ignore[union-attr]
    assert "and 1980 more" in text
    assert text.count("\n* op_") == 20
    assert "* op_1999" in text
    assert "and 1999 more at" in mail["Subject"]
    assert len(inbox.raw[0]) < 60_000


@pytest.mark.django_db
def test_messages_of_one_alert_are_one_thread(inbox: Inbox) -> None:
    alert = new_alert()
    for name in ("ann", "bob"):
        subscribe.subscribe(alert.project, email=f"{name}@example.org")
    for occasion in ("new", "culprit", "recovered"):
        assert tell_all(alert, occasion) == [True, True]
    mails = [mail for mail in inbox.mails() if mail["To"] == "ann@example.org"]
    assert len({mail["Message-ID"] for mail in inbox.mails()}) == 6
    assert mails[0]["Message-ID"].endswith("@perf.example.org>")
    assert [mail["In-Reply-To"] for mail in mails] == [None, mails[0]["Message-ID"], mails[0]["Message-ID"]]
    assert [mail["References"] for mail in mails] == [None, mails[0]["Message-ID"], mails[0]["Message-ID"]]
    assert "recovered: " in mails[2]["Subject"]


# -- who and when ------------------------------------------------------------------------------------------
@pytest.mark.django_db
def test_filters_choose_and_improvements_send_nothing(inbox: Inbox) -> None:
    alert = new_alert()
    subscribe.subscribe(alert.project, email="all@example.org")
    subscribe.subscribe(
        alert.project, email="fits@example.org", benchmark_pattern="softmax*", metric_pattern="*_p99"
    )
    subscribe.subscribe(alert.project, email="other@example.org", metric_pattern="throughput")
    gone = subscribe.subscribe(alert.project, email="gone@example.org")
    subscribe.unsubscribe(gone.unsubscribe_token)
    Alert.objects.filter(pk=alert.pk).update(blocking=False)
    alert.refresh_from_db()
    subscribe.subscribe(alert.project, email="strict@example.org", only_blocking=True)
    tell_all(alert)
    assert sorted(mail["To"] for mail in inbox.mails()) == ["all@example.org", "fits@example.org"]
    alert.kind = "improvement"
    assert notify.announce(alert, "culprit") == []


@pytest.mark.django_db
def test_who_heard_of_an_alert_hears_that_it_recovered(inbox: Inbox) -> None:
    """Its changes are no longer active then; a filter must still find them."""
    alert = new_alert()
    subscribe.subscribe(alert.project, email="ann@example.org", metric_pattern="*_p99")
    tell_all(alert)
    alert.changes.update(active=False)
    assert tell_all(alert, "recovered") == [True]


@pytest.mark.django_db
def test_the_same_occasion_is_told_once(inbox: Inbox) -> None:
    alert = new_alert()
    subscribe.subscribe(alert.project, email="ann@example.org")
    assert [len(tell_all(alert)) for _ in range(5)] == [1, 0, 0, 0, 0]
    assert not notify.deliver(Message.objects.get().pk)
    assert not notify.deliver(0)
    assert len(inbox.raw) == 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("digest", [False, True])
def test_workers_that_race_send_one_mail(inbox: Inbox, *, digest: bool) -> None:
    alert = new_alert()
    subscribe.subscribe(alert.project, email="ann@example.org", digest=digest)
    start = threading.Barrier(4)
    sent: list[bool] = []

    def work() -> None:
        start.wait()
        notify.announce(Alert.objects.get(pk=alert.pk), "new")
        Message.objects.filter(state=MessageState.PENDING).update(next_attempt_at=alert.created_at)
        sent.append(notify.deliver(Message.objects.get().pk))
        connection.close()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(sent) == [False, False, False, True]
    assert len(inbox.raw) == 1


@pytest.mark.django_db
def test_a_digest_gathers_the_day(inbox: Inbox) -> None:
    first = new_alert()
    matmul = series_of(first.project, [Cell("matmul", {"m": 8}, "time", "s", 1.0)])[-1:]
    second = make_alert(first.project, matmul)
    subscribe.subscribe(first.project, email="ann@example.org", digest=True)
    made = [pk for alert in (first, second) for pk in notify.announce(alert, "new")]
    assert [notify.deliver(pk) for pk in made] == [False, False]
    assert notify.due() == []
    morning = Message.objects.all()[0].next_attempt_at
    assert morning is not None
    assert morning.hour == notify.DIGEST_HOUR_UTC
    assert timedelta(0) < morning - timezone.now() <= timedelta(days=1)
    later(60 * 24)
    assert [notify.deliver(pk) for pk in notify.due()] == [True, False]
    (mail,) = inbox.mails()
    assert mail["Subject"] == "[perfdb lab] 2 messages of the day"
    text = mail.get_body(("plain",)).get_content()  # type: ignore[union-attr]
    assert "softmax" in text
    assert "matmul" in text
    assert set(Message.objects.values_list("state", flat=True)) == {MessageState.SENT}


# -- when it fails -----------------------------------------------------------------------------------------
@pytest.mark.django_db
def test_a_failing_channel_is_retried_alone_and_later(inbox: Inbox, hook: Hook) -> None:
    alert = new_alert()
    subscribe.subscribe(alert.project, email="ann@example.org")
    subscribe.subscribe(alert.project, webhook=hook.url)
    hook.codes = [503, 429, 200]
    assert tell_all(alert) == [True, False]
    waiting = Message.objects.get(recipient=hook.url)
    assert (waiting.state, waiting.attempts) == (MessageState.PENDING, 1)
    assert "503" in waiting.error
    assert notify.due() == []
    later(1)
    assert [notify.deliver(pk) for pk in notify.due()] == [False]
    later(1)
    assert notify.due() == [], "the second wait is longer"
    later(1)
    assert [notify.deliver(pk) for pk in notify.due()] == [True]
    assert len(hook.bodies) == len(inbox.raw) == 1
    assert Message.objects.get(pk=waiting.pk).error == ""


@pytest.mark.django_db
@pytest.mark.parametrize("answer", ["550 no such user", "404", "302"])
def test_a_lasting_no_is_shown_as_failed(inbox: Inbox, hook: Hook, answer: str) -> None:
    alert = new_alert()
    if answer.startswith("550"):
        inbox.answers = [answer]
        subscribe.subscribe(alert.project, email="ann@example.org")
    else:
        hook.codes = [int(answer)]
        subscribe.subscribe(alert.project, webhook=hook.url)
    assert tell_all(alert) == [False]
    message = Message.objects.get()
    assert message.state == MessageState.FAILED
    assert answer.split()[0] in message.error
    later(60 * 24)
    assert notify.due() == []


@pytest.mark.django_db
def test_a_mail_server_that_is_away_is_tried_until_the_last_attempt(settings: Settings, inbox: Inbox) -> None:
    """And whatever happens, the alert stays what it was."""
    from perfdb.config.celery import app

    alert = new_alert()
    subscribe.subscribe(alert.project, email="ann@example.org")
    settings.EMAIL_PORT = MAIL_DOWN
    before = (
        alert.state,
        alert.culprit_id,
        AlertEvent.objects.count(),
        Change.objects.filter(active=True).count(),
    )
    app.conf.task_always_eager = True
    try:
        assert tell(alert.pk, "new") == 1
    finally:
        app.conf.task_always_eager = False
    for _ in range(notify.MAX_ATTEMPTS + 2):
        later(60 * 24)
        for pk in notify.due():
            notify.deliver(pk)
    message = Message.objects.get()
    assert (message.state, message.attempts) == (MessageState.FAILED, notify.MAX_ATTEMPTS)
    assert "refused" in message.error
    alert.refresh_from_db()
    after = (
        alert.state,
        alert.culprit_id,
        AlertEvent.objects.count(),
        Change.objects.filter(active=True).count(),
    )
    assert after == before


@pytest.mark.django_db
def test_a_sender_that_died_is_followed_by_another_but_not_for_ever(inbox: Inbox) -> None:
    alert = new_alert()
    subscribe.subscribe(alert.project, email="ann@example.org")
    (pk,) = notify.announce(alert, "new")
    Message.objects.filter(pk=pk).update(
        state=MessageState.SENDING, attempts=1, next_attempt_at=timezone.now()
    )
    assert not notify.deliver(pk), "it may still be on its way"
    later(6)
    assert notify.deliver(pk)
    Message.objects.filter(pk=pk).update(state=MessageState.SENDING, attempts=notify.MAX_ATTEMPTS)
    later(6)
    assert not notify.deliver(pk)
    assert Message.objects.get(pk=pk).state == MessageState.FAILED


# -- webhooks ----------------------------------------------------------------------------------------------
@pytest.mark.django_db
@pytest.mark.parametrize("style", ["json", "slack"])
def test_webhooks_call_nobody_by_what_a_commit_says(hook: Hook, style: str) -> None:
    alert = new_alert()
    Commit.objects.update(subject=HOSTILE_SUBJECT)
    subscribe.subscribe(alert.project, webhook=hook.url, webhook_style=style)
    assert tell_all(Alert.objects.get(pk=alert.pk)) == [True]
    (body,) = hook.bodies
    assert "@someone" not in body["text"]
    assert "someone" in body["text"]
    assert "softmax[n=4096] ttft_p99 +31.0 %" in body["text"]
    if style == "slack":
        assert set(body) == {"text"}
        assert "<" not in body["text"]
        assert "&lt;!channel&gt;" in body["text"]
    else:
        assert body["alerts"][0] | {"link": ""} == {
            "id": alert.pk, "project": "lab", "kind": "regression", "state": "new", "title": alert.title,
            "culprit": sha(4), "link": "",
        }  # fmt: skip
        assert body["occasion"] == "new"


def test_mentions_and_addresses() -> None:
    assert for_chat("thanks @someone, @org/team") == "thanks @\u200bsomeone, @\u200borg/team"
    assert for_chat("mail ann@example.org") == "mail ann@example.org"
    assert for_slack("<!here> a & b") == "&lt;!here&gt; a &amp; b"
    assert len(for_chat("x" * 100_000)) < 40_000


@pytest.mark.django_db
def test_subscribing_again_changes_and_bad_addresses_are_refused() -> None:
    project = make_project("lab", 2)
    first = subscribe.subscribe(project, email="ann@example.org")
    again = subscribe.subscribe(project, email="ann@example.org", digest=True)
    assert (again.pk, again.digest, again.unsubscribe_token) == (first.pk, True, first.unsubscribe_token)
    for bad in ("ann", "ann@example.org\r\nBcc: eve@example.invalid", "a@b.org, c@d.org"):
        with pytest.raises(ValidationError):
            subscribe.subscribe(project, email=bad)
    assert Subscription.objects.count() == 1
