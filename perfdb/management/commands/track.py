"""`manage.py track URL-or-path`: start to track a repository, or change how it is tracked."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from perfdb.services import catalogue, track
from perfdb.tasks import send_jobs_later
from perfdb.vcs import GitError


class Command(BaseCommand):
    """Reads the repository once here; from then on beat looks at it every `--every` seconds."""

    help = "Track a git repository that has a perfdb.toml: its commits are measured from now on."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("url", help="path or URL that git can fetch")
        parser.add_argument("--name", help="slug of the project (default: the last part of the URL)")
        parser.add_argument(
            "--branch", action="append", default=[], help="may be repeated (default: git's HEAD)"
        )
        parser.add_argument("--depth", type=int, default=50, help="commits back (default: %(default)s)")
        parser.add_argument(
            "--only", action="append", default=[], metavar="GLOB", help="only commits that touch it"
        )
        parser.add_argument("--every", type=int, default=60, metavar="SECONDS", help="default: %(default)s")
        parser.add_argument(
            "--pool", default="default", help="which workers measure it (default: %(default)s)"
        )
        parser.add_argument("--newest-only", action="store_true", help="measure no history, only what comes")
        parser.add_argument("--private", action="store_true", help="anonymous people may not read it")
        parser.add_argument(
            "--credential",
            default="",
            help="for a private repository: env:NAME (an HTTPS token) or file:PATH (an SSH key)",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if options["depth"] < 1:
            raise CommandError("--depth must be at least 1")
        try:
            project = track.track(
                options["url"],
                slug=options["name"],
                branches=options["branch"],
                depth=options["depth"],
                credential_name=options["credential"],
                public=not options["private"],
            )
            project.path_filter, project.poll_interval_s = options["only"], options["every"]
            project.save(update_fields=["path_filter", "poll_interval_s"])
            with transaction.atomic():
                pool = catalogue.pool(options["pool"])
                fetched = track.fetch(project, pool=pool, measure_history=not options["newest_only"])
                send_jobs_later(job.pk for job in fetched.jobs)
        except (GitError, ValueError) as error:
            raise CommandError(str(error)) from None
        for branch, placement in fetched.placements.items():
            self.stdout.write(f"{project.slug}: {len(placement.added)} new commits on {branch}")
        self.stdout.write(f"{len(fetched.jobs)} jobs queued")
