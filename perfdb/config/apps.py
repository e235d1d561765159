"""The one Django application."""

from django.apps import AppConfig


class PerfdbConfig(AppConfig):
    """Registers models, tasks, templates and commands of the package `perfdb`."""

    name = "perfdb"
    verbose_name = "perfdb"
    default_auto_field = "django.db.models.BigAutoField"
