"""Mail into the local inbox."""

from email import message_from_bytes
from email.policy import default as modern
from pathlib import Path

import pytest
from django.core.mail import EmailMultiAlternatives, get_connection
from pytest_django import Settings

from perfdb.local.inbox import open_inbox


@pytest.fixture
def inbox(tmp_path: Path, settings: Settings) -> Path:
    settings.EMAIL_INBOX = tmp_path / "inbox"
    return tmp_path / "inbox"


def _send(*, to: list[str], subject: str = "p99 größer") -> int:
    connection = get_connection("perfdb.local.inbox.InboxEmailBackend")
    message = EmailMultiAlternatives(subject, "Plain ü", "perfdb@localhost", to, connection=connection)
    message.attach_alternative("<p>Rich ü</p>", "text/html")
    return message.send()


def test_a_message_reads_back_as_it_was_sent(inbox: Path) -> None:
    assert _send(to=["ann@example.org", "bob@example.org"]) == 1
    (raw,) = open_inbox(inbox)

    message = message_from_bytes(raw.as_bytes(), policy=modern)
    assert message["Subject"] == "p99 größer"
    assert message["To"] == "ann@example.org, bob@example.org"
    plain = message.get_body(("plain",))
    rich = message.get_body(("html",))
    assert plain is not None
    assert rich is not None
    assert (plain.get_content().strip(), rich.get_content().strip()) == ("Plain ü", "<p>Rich ü</p>")


def test_each_message_is_a_file_of_its_own(inbox: Path) -> None:
    for number in range(3):
        _send(to=["ann@example.org"], subject=f"number {number}")
    assert sorted(message["Subject"] for message in open_inbox(inbox)) == ["number 0", "number 1", "number 2"]


def test_a_message_to_nobody_is_not_delivered(inbox: Path) -> None:
    assert _send(to=[]) == 0
    assert len(open_inbox(inbox)) == 0
