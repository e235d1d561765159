"""`manage.py status`: what runs, since when it has been restarted, where its logs are."""

import sys
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from perfdb.local.status import running_status

NOT_RUNNING = 3  # as `systemctl status` has it


class Command(BaseCommand):
    """Prints one line for the stack and one for each service; exits 3 when nothing runs."""

    help = "Show the state of the perfdb of this state folder."
    requires_system_checks = ()

    def handle(self, *args: Any, **options: Any) -> None:
        running = running_status(settings.STATE)
        if running is None:
            self.stdout.write(f"perfdb: not running (data in {settings.STATE.path})")
            sys.exit(NOT_RUNNING)
        self.stdout.write(f"perfdb: {running.phase} at {running.address} (pid {running.pid})")
        for service in running.services:
            life = f"pid {service.pid}" if service.pid else "waiting to be started again"
            log = settings.STATE.logs / f"{service.name}.log"
            self.stdout.write(f"  {service.name:16} {life}, {service.restarts} restarts, {log}")
