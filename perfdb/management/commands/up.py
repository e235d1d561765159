"""`manage.py up`: the whole of perfdb, in the foreground, until Ctrl-C."""

import sys
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from perfdb.local.front import run_in_foreground
from perfdb.local.status import running_status


class Command(BaseCommand):
    """Starts database, broker, web, workers and beat under one supervisor."""

    help = (
        "Run perfdb: PostgreSQL and Valkey (or those in DATABASE_URL, REDIS_URL), web, workers and beat. "
        "Stop with Ctrl-C, SIGTERM or `manage.py down`."
    )
    requires_system_checks = ()
    requires_migrations_checks = False

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
        parser.add_argument("--port", type=int, help="default: the first free one from 8000 on")

    def handle(self, *args: Any, **options: Any) -> None:
        running = running_status(settings.STATE)
        if running is not None:
            where = running.address or "an address it has not settled yet"
            self.stdout.write(f"perfdb: already running at {where} (pid {running.pid})")
            return
        sys.exit(run_in_foreground(host=options["host"], port=options["port"]))
