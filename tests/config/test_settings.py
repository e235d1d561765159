"""Settings from the environment, each in a process of its own, as they are read once."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]


def _settings(*names: str, state: Path, **environment: str) -> dict[str, Any]:
    script = (
        "import json, sys; from perfdb.config import settings; "
        "print(json.dumps({name: getattr(settings, name) for name in sys.argv[1:]}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *names],
        env={"PATH": os.environ["PATH"], "PERFDB_STATE": str(state), **environment},
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_nothing_set_describes_the_embedded_stack(tmp_path: Path) -> None:
    found = _settings(
        "DATABASES", "CELERY_BROKER_URL", "DEBUG", "EMAIL_BACKEND", "SECRET_KEY_IS_EPHEMERAL", state=tmp_path
    )
    assert found["DATABASES"]["default"]["HOST"] == str(tmp_path / "postgres" / "socket")
    assert found["CELERY_BROKER_URL"].startswith(f"redis+socket://{tmp_path}/run/valkey.sock")
    assert found["DEBUG"] is False
    assert found["EMAIL_BACKEND"] == "perfdb.local.inbox.InboxEmailBackend"
    assert found["SECRET_KEY_IS_EPHEMERAL"] is True


def test_the_key_of_the_state_folder_is_used_and_the_environments_wins(tmp_path: Path) -> None:
    (tmp_path / "secret_key").write_text("of the folder")
    assert _settings("SECRET_KEY", state=tmp_path)["SECRET_KEY"] == "of the folder"
    found = _settings(
        "SECRET_KEY", "SECRET_KEY_IS_EPHEMERAL", state=tmp_path, PERFDB_SECRET_KEY="of the environment"
    )
    assert found == {"SECRET_KEY": "of the environment", "SECRET_KEY_IS_EPHEMERAL": False}


def test_an_https_address_hardens_the_cookies(tmp_path: Path) -> None:
    names = ("SESSION_COOKIE_SECURE", "CSRF_COOKIE_SECURE", "SECURE_HSTS_SECONDS", "CSRF_TRUSTED_ORIGINS")
    found = _settings(*names, "ALLOWED_HOSTS", state=tmp_path, PERFDB_BASE_URL="https://perf.example/")
    assert found["SESSION_COOKIE_SECURE"] is found["CSRF_COOKIE_SECURE"] is True
    assert found["SECURE_HSTS_SECONDS"] > 0
    assert found["CSRF_TRUSTED_ORIGINS"] == ["https://perf.example"]
    assert "perf.example" in found["ALLOWED_HOSTS"]
    assert "*" not in found["ALLOWED_HOSTS"]


def test_a_mail_host_turns_real_mail_on(tmp_path: Path) -> None:
    found = _settings(
        *("EMAIL_BACKEND", "EMAIL_HOST", "EMAIL_PORT", "EMAIL_USE_TLS"),
        state=tmp_path,
        EMAIL_HOST="mail.example",
        EMAIL_PORT="587",
        EMAIL_USE_TLS="yes",
    )
    assert found == {
        "EMAIL_BACKEND": "django.core.mail.backends.smtp.EmailBackend",
        "EMAIL_HOST": "mail.example",
        "EMAIL_PORT": 587,
        "EMAIL_USE_TLS": True,
    }


def test_the_web_process_refuses_to_start_without_a_key(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import perfdb.config.wsgi"],
        env={"PATH": os.environ["PATH"], "PERFDB_STATE": str(tmp_path)},
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "Set PERFDB_SECRET_KEY" in done.stderr


def test_messages_are_ids_that_survive_a_worker() -> None:
    from perfdb.config.celery import app

    assert app.conf.task_serializer == "json"
    assert app.conf.accept_content == ["json"]
    assert app.conf.task_acks_late is True
    assert app.conf.worker_prefetch_multiplier == 1
    assert app.conf.broker_transport_options["visibility_timeout"] >= 3600
    assert app.conf.task_default_queue == "analysis"


@pytest.mark.django_db
def test_no_migration_is_missing() -> None:
    from django.core.management import call_command

    call_command("makemigrations", check=True, dry_run=True, verbosity=0)
