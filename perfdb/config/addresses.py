"""Readers of the addresses that come from the environment, each into the form its library wants."""

from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured


def database_settings(url: str) -> dict[str, Any]:
    """Django's settings for a PostgreSQL URL in libpq's form.

    `postgresql://user:password@host:5432/name?sslmode=require`, or with a socket folder
    `postgresql:///name?host=/folder&user=name`. Parameters that Django has no key for become OPTIONS.

    Raises:
        ImproperlyConfigured: another scheme, no database name, or a port that is no number.
    """
    parts = urlsplit(url)
    if parts.scheme not in {"postgresql", "postgres"}:
        raise ImproperlyConfigured(
            f"DATABASE_URL has the scheme {parts.scheme!r}; perfdb needs postgresql://user@host/name"
        )
    name = unquote(parts.path.removeprefix("/"))
    if not name:
        raise ImproperlyConfigured("DATABASE_URL names no database: postgresql://user@host/NAME")
    try:
        port = parts.port
    except ValueError as error:
        raise ImproperlyConfigured(f"DATABASE_URL: {error}") from error
    options = dict(parse_qsl(parts.query))
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": name,
        "USER": unquote(parts.username or "") or options.pop("user", ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": unquote(parts.hostname or "") or options.pop("host", ""),
        "PORT": str(port or options.pop("port", "")),
        "OPTIONS": options,
    }


def broker_url(redis_url: str) -> str:
    """Celery's form of a redis-py URL: a socket is spelled `redis+socket://` with `virtual_host`.

    Raises:
        ImproperlyConfigured: the scheme is none of redis, rediss, unix.
    """
    parts = urlsplit(redis_url)
    if parts.scheme in {"redis", "rediss"}:
        return redis_url
    if parts.scheme != "unix":
        raise ImproperlyConfigured(
            f"REDIS_URL has the scheme {parts.scheme!r}; perfdb needs redis://, rediss:// or unix://"
        )
    database = dict(parse_qsl(parts.query)).get("db", "0")
    return f"redis+socket://{parts.path}?virtual_host={database}"
