"""The first administrator."""

import re
from io import StringIO

import pytest
from django.contrib.auth import authenticate
from django.contrib.auth.models import User
from django.core.management import call_command

from perfdb.models import Scope
from perfdb.services.access import find_token


def _bootstrap() -> str:
    output = StringIO()
    call_command("bootstrap", stdout=output)
    return output.getvalue()


def _shown(output: str, name: str) -> str:
    found = re.search(rf"^ +{name} +(\S+)$", output, re.MULTILINE)
    assert found is not None, output
    return found[1]


@pytest.mark.django_db
def test_what_is_shown_works() -> None:
    output = _bootstrap()
    user = authenticate(username=_shown(output, "user"), password=_shown(output, "password"))
    assert isinstance(user, User)
    assert user.is_superuser
    token = find_token(_shown(output, "token"))
    assert token is not None
    assert (token.user, token.scopes, token.project) == (user, [Scope.ADMIN], None)


@pytest.mark.django_db
def test_a_second_time_nothing_is_made_or_shown() -> None:
    _bootstrap()
    before = User.objects.values_list("pk", "password").get()
    assert _bootstrap() == ""
    assert User.objects.values_list("pk", "password").get() == before
