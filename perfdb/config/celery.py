"""The Celery application; its settings are the CELERY_ ones of Django's settings."""

import os
import signal
from typing import Any

from celery import Celery
from celery.signals import worker_process_init

from perfdb.local.deathsignal import die_with_parent

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "perfdb.config.settings")

app = Celery("perfdb")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()


@worker_process_init.connect
def _end_with_the_worker(**kwargs: Any) -> None:
    """A pool process whose worker was killed must not go on with its task: the task is someone else's now."""
    die_with_parent(signal.SIGKILL)
