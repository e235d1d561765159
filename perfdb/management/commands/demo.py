"""`manage.py demo`: watch a planted regression being measured, found, bisected, shown and mailed."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from perfdb.demo import history, watch
from perfdb.local.front import StackStartError, running_stack
from perfdb.local.state import FOLDER_VARIABLE
from perfdb.local.status import running_status
from perfdb.models import Project
from perfdb.services import subscribe, track
from perfdb.tasks import send_jobs

FOLDER = Path(".demo")
MAIL_TO = "sheriff@tensorlab.invalid"


class Command(BaseCommand):
    """Builds the repository, starts the stack in a folder of its own, tracks, waits and compares."""

    help = "Build a small repository with planted regressions, measure it and show what perfdb finds."
    requires_system_checks = ()
    requires_migrations_checks = False

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--port", type=int, help="default: the first free one from 8000 on")
        parser.add_argument(
            "--limit-s", type=float, default=1500.0, help="give up after (default: %(default)s)"
        )
        parser.add_argument("--exit", action="store_true", help="end after the report, also on a terminal")

    def handle(self, *args: Any, **options: Any) -> None:
        folder = (settings.BASE_DIR / FOLDER).absolute()
        if os.environ.get(FOLDER_VARIABLE) != str(folder / "state"):
            # The settings were read for this checkout's own data; the demo has its own, made afresh each time.
            os.environ[FOLDER_VARIABLE] = str(folder / "state")
            os.execv(sys.executable, [sys.executable, *sys.argv])  # noqa: S606  (this very command again)
        running = running_status(settings.STATE)
        if running is not None:
            raise CommandError(f"the demo is already running at {running.address} (pid {running.pid})")
        _remove(folder)
        made = history.write(folder / "tensorlab")
        self.stdout.write(f"made a repository of {len(made.shas)} commits in {FOLDER / 'tensorlab'}")
        try:
            with running_stack(settings.STATE, port=options["port"]) as stack:
                right = self._run(made, stack.address, limit_s=options["limit_s"])
                if sys.stdout.isatty() and not os.environ.get("CI") and not options["exit"]:
                    self.stdout.write(f"\nstill serving at {stack.address} until Ctrl-C")
                    _until_interrupted()
        except StackStartError as error:
            raise CommandError(str(error)) from None
        sys.exit(0 if right else 1)

    def _run(self, made: history.History, address: str, *, limit_s: float) -> bool:
        self.stdout.write(f"perfdb runs at {address}: look while it measures")
        project = _track(made)
        ended = watch.wait(project, limit_s=limit_s, out=sys.stderr)
        report = watch.report(project, made.planted)
        self._print(report, made, address, project)
        if not ended:
            self.stdout.write(f"gave up after {limit_s:.0f} s with work left")
        return ended and report.right

    def _print(self, report: watch.Report, made: history.History, address: str, project: Project) -> None:
        self.stdout.write("\nplanted                                          commit      found")
        for row in report.rows:
            mark = "yes" if row.right else "NO "
            self.stdout.write(f"{row.planted:<48} {row.sha[:10]}  {mark} {row.found}")
        for what, sha in made.planted.items():
            if what not in (history.Planted.SLOWER, history.Planted.OUT_OF_MEMORY):
                self.stdout.write(f"{what:<48} {sha[:10]}  (no regression)")
        for line in report.blamed:
            self.stdout.write(f"blamed without cause: {line}")
        self.stdout.write(f"\nalerts: {address}/projects/{project.slug}/alerts/   mail: {address}/inbox/")


def _track(made: history.History) -> Project:
    project = track.track(str(made.path), slug="tensorlab", depth=len(made.shas))
    subscribe.subscribe(project, email=MAIL_TO)
    with transaction.atomic():
        fetched = track.fetch(project)
    send_jobs(job.pk for job in fetched.jobs)
    return project


def _remove(folder: Path) -> None:
    """The last demo's data, also where the state folder is a link to another place."""
    state = folder / "state"
    if state.is_symlink():
        shutil.rmtree(state.resolve(), ignore_errors=True)
        state.unlink()
    if folder.exists():
        shutil.rmtree(folder)


def _until_interrupted() -> None:
    """Wait for Ctrl-C or SIGTERM."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        return
