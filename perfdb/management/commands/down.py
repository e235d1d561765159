"""`manage.py down`: stop what `up` started, from another terminal."""

import os
import signal
import time
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from perfdb.local.front import STOP_TIMEOUT_S
from perfdb.local.status import running_status


class Command(BaseCommand):
    """Asks the supervisor to stop and waits for it; nothing to do is a success."""

    help = "Stop the perfdb that `manage.py up` started for this state folder."
    requires_system_checks = ()

    def handle(self, *args: Any, **options: Any) -> None:
        running = running_status(settings.STATE)
        if running is None:
            self.stdout.write("perfdb: not running")
            return
        os.kill(running.pid, signal.SIGTERM)
        deadline_s = time.monotonic() + STOP_TIMEOUT_S
        while running_status(settings.STATE) is not None:
            if time.monotonic() > deadline_s:
                raise CommandError(f"pid {running.pid} has not stopped after {STOP_TIMEOUT_S:g} s")
            time.sleep(0.1)
        self.stdout.write("perfdb: stopped")
