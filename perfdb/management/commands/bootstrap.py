"""`manage.py bootstrap`: the first administrator with a token for the API, shown once."""

import secrets
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand
from django.db import transaction

from perfdb.models import Scope
from perfdb.services.access import create_token

ADMINISTRATOR = "admin"


class Command(BaseCommand):
    """Makes an administrator with a random password and a token where there is none yet, else does nothing."""

    help = "Make the first administrator and print password and token. Does nothing when there is one."

    @transaction.atomic
    def handle(self, *args: Any, **options: Any) -> None:
        if User.objects.filter(is_superuser=True).exists():
            return
        password = secrets.token_urlsafe(12)
        user = User.objects.create_superuser(ADMINISTRATOR, password=password)
        token = create_token("first administrator", [Scope.ADMIN], user=user)
        self.stdout.write("perfdb: made an administrator; this is shown once:")
        self.stdout.write(f"  user      {ADMINISTRATOR}")
        self.stdout.write(f"  password  {password}")
        self.stdout.write(f"  token     {token.secret}")
