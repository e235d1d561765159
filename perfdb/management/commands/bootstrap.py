"""`manage.py bootstrap`: the first administrator, shown once."""

import secrets
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand
from django.db import transaction

ADMINISTRATOR = "admin"


class Command(BaseCommand):
    """Makes an administrator with a random password where there is none yet, else does nothing."""

    help = "Make the first administrator and print the password. Does nothing when there is one."

    @transaction.atomic
    def handle(self, *args: Any, **options: Any) -> None:
        users = get_user_model()._default_manager
        if users.filter(is_superuser=True).exists():
            return
        password = secrets.token_urlsafe(12)
        users.create_superuser(ADMINISTRATOR, password=password)
        self.stdout.write("perfdb: made an administrator; this is shown once:")
        self.stdout.write(f"  user      {ADMINISTRATOR}")
        self.stdout.write(f"  password  {password}")
