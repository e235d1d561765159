"""Mail into a maildir instead of to a server: what the demo and a first installation use.

A maildir because delivery into it is atomic, and the standard library reads it.
"""

import mailbox
from collections.abc import Sequence
from pathlib import Path

from django.conf import settings
from django.core.mail import EmailMessage
from django.core.mail.backends.base import BaseEmailBackend


class InboxEmailBackend(BaseEmailBackend):
    """Delivers each message into the maildir `settings.EMAIL_INBOX`."""

    def send_messages(self, email_messages: Sequence[EmailMessage]) -> int:
        """Deliver; returns how many messages had a recipient."""
        inbox = open_inbox(Path(settings.EMAIL_INBOX))
        addressed = [message for message in email_messages if message.recipients()]
        for message in addressed:
            inbox.add(message.message().as_bytes())
        return len(addressed)


def open_inbox(path: Path) -> mailbox.Maildir:
    """The maildir at `path`, made if it is not there; iterate it for messages."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return mailbox.Maildir(path, create=True)
