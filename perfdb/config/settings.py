"""Django's settings, all from the environment; docs/operations.md lists the variables.

Without any variable they describe the embedded stack of this checkout: its servers' sockets, its secret key
and its inbox all lie in the state folder.
"""

import os
import secrets
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from kombu import Queue

from perfdb.config.addresses import broker_url, database_settings
from perfdb.local.state import locate

BASE_DIR = Path(__file__).resolve().parents[2]
STATE = locate(checkout=BASE_DIR)


def _flag(name: str) -> bool:
    return os.environ.get(name, "").lower() in {"1", "true", "yes", "on"}


def _list(name: str) -> list[str]:
    return [item.strip() for item in os.environ.get(name, "").split(",") if item.strip()]


# --- Who may talk to us ------------------------------------------------------------------------------------
DEBUG = _flag("PERFDB_DEBUG")
_secret_key = os.environ.get("PERFDB_SECRET_KEY") or STATE.secret_key()
# Commands that sign nothing (migrate, checks, tests) run without a key; the web process refuses to.
SECRET_KEY_IS_EPHEMERAL = _secret_key is None
SECRET_KEY = _secret_key or secrets.token_urlsafe(50)

# The address people use, for links in mail and behind a proxy. No trailing slash.
BASE_URL = os.environ.get("PERFDB_BASE_URL", "http://localhost:8000").rstrip("/")
_base = urlsplit(BASE_URL)
# The loopback names stay in: health checks and the embedded stack come through them.
ALLOWED_HOSTS = [*_list("PERFDB_ALLOWED_HOSTS"), "localhost", "127.0.0.1", "[::1]"]
if _base.hostname and _base.hostname not in ALLOWED_HOSTS:
    ALLOWED_HOSTS.append(_base.hostname)
CSRF_TRUSTED_ORIGINS = [f"{_base.scheme}://{_base.netloc}"]

SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = _base.scheme == "https"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SECURE_HSTS_SECONDS = 30 * 24 * 3600 if _base.scheme == "https" else 0
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
if _flag("PERFDB_BEHIND_PROXY"):
    # Only where a proxy overwrites the header: else a client could claim https by itself.
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")

# --- Application -------------------------------------------------------------------------------------------
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.humanize",
    "django.contrib.postgres",
    "rest_framework",
    "drf_spectacular",
    "django_htmx",
    "perfdb.config.apps.PerfdbConfig",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "perfdb.config.security.ContentSecurityPolicyMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "perfdb.web.access.LoginNeededMiddleware",
]
ROOT_URLCONF = "perfdb.config.urls"
WSGI_APPLICATION = "perfdb.config.wsgi.application"
TEMPLATES: list[dict[str, Any]] = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "libraries": {"perfdb_web": "perfdb.web.templatetags.perfdb_web"},
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = LOGOUT_REDIRECT_URL = "/"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True
# An upload of a million samples is about 20 MB of JSON.
DATA_UPLOAD_MAX_MEMORY_SIZE = 64 * 1024 * 1024

# --- Storage -----------------------------------------------------------------------------------------------
DATABASE_URL = os.environ.get("DATABASE_URL") or STATE.database_url
REDIS_URL = os.environ.get("REDIS_URL") or STATE.redis_url
DATABASES = {
    "default": {
        **database_settings(DATABASE_URL),
        "CONN_MAX_AGE": 60,
        "CONN_HEALTH_CHECKS": True,
    },
}
# Mirrors, built trees and worktrees of the tracked repositories.
PERFDB_DATA = Path(os.environ.get("PERFDB_DATA") or STATE.path / "data")
# How often a worker says that it lives, and after how long without a word its job is given to another.
PERFDB_HEARTBEAT_S = float(os.environ.get("PERFDB_HEARTBEAT_S", "5"))
PERFDB_SILENCE_S = float(os.environ.get("PERFDB_SILENCE_S", "45"))
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# --- Static files ------------------------------------------------------------------------------------------
STATIC_URL = "/static/"
STATICFILES_DIRS = [BASE_DIR / "perfdb" / "web" / "static"]
STATICFILES_FINDERS = [
    "django.contrib.staticfiles.finders.FileSystemFinder",
    "django.contrib.staticfiles.finders.AppDirectoriesFinder",
    "perfdb.config.staticfiles.PlotlyFinder",
]
# With a folder for collected files they are hashed, compressed and cached for ever; without one (tests,
# development) they are served from where they lie.
_static_root = os.environ.get("PERFDB_STATIC_ROOT")
STATIC_ROOT = Path(_static_root) if _static_root else None
WHITENOISE_USE_FINDERS = _static_root is None
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": (
            "whitenoise.storage.CompressedManifestStaticFilesStorage"
            if _static_root
            else "django.contrib.staticfiles.storage.StaticFilesStorage"
        ),
    },
}

# --- Mail --------------------------------------------------------------------------------------------------
# Without a mail host, mail goes into a maildir in the state folder, which the dashboard shows.
EMAIL_HOST = os.environ.get("EMAIL_HOST", "")
EMAIL_PORT = int(os.environ.get("EMAIL_PORT", "25"))
EMAIL_HOST_USER = os.environ.get("EMAIL_HOST_USER", "")
EMAIL_HOST_PASSWORD = os.environ.get("EMAIL_HOST_PASSWORD", "")
EMAIL_USE_TLS = _flag("EMAIL_USE_TLS")
EMAIL_USE_SSL = _flag("EMAIL_USE_SSL")
EMAIL_TIMEOUT = 30
EMAIL_BACKEND = (
    "django.core.mail.backends.smtp.EmailBackend" if EMAIL_HOST else "perfdb.local.inbox.InboxEmailBackend"
)
EMAIL_INBOX = STATE.inbox
DEFAULT_FROM_EMAIL = os.environ.get("DEFAULT_FROM_EMAIL", "perfdb <perfdb@localhost>")

# --- Celery ------------------------------------------------------------------------------------------------
CELERY_BROKER_URL = broker_url(REDIS_URL)
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
# A message is only an id. Longer than any measurement: a claimed job must not be delivered again while it
# runs (harmless, but it costs a wake-up); lost ones are sent again from their rows.
CELERY_BROKER_TRANSPORT_OPTIONS = {"visibility_timeout": 6 * 3600}
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_SERIALIZER = "json"
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_TASK_DEFAULT_QUEUE = "analysis"
# Every pool besides "default" has a queue of its own, `measure.<pool>`, made on first use.
CELERY_TASK_CREATE_MISSING_QUEUES = True
CELERY_TASK_QUEUES = [Queue("analysis"), Queue("measure")]
CELERY_TIMEZONE = TIME_ZONE
CELERY_BEAT_SCHEDULE: dict[str, Any] = {
    "poll projects": {"task": "perfdb.tasks.poll_projects", "schedule": 15.0},
    "keep jobs": {"task": "perfdb.tasks.keep_jobs", "schedule": 15.0},
    "watch data": {"task": "perfdb.tasks.watch_data", "schedule": 300.0},
    "deliver due": {"task": "perfdb.tasks.deliver_due", "schedule": 30.0},
}

# --- API ---------------------------------------------------------------------------------------------------
REST_FRAMEWORK: dict[str, Any] = {
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "perfdb.api.access.TokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    # Every view names the scope it needs (perfdb.api.access); there is no blanket rule to forget about.
    "DEFAULT_PERMISSION_CLASSES": [],
    "EXCEPTION_HANDLER": "perfdb.api.problems.problem_response",
    "DEFAULT_THROTTLE_CLASSES": [
        "rest_framework.throttling.AnonRateThrottle",
        "rest_framework.throttling.UserRateThrottle",
    ],
    "DEFAULT_THROTTLE_RATES": {"anon": "600/min", "user": "6000/min"},
}
SPECTACULAR_SETTINGS: dict[str, Any] = {
    "TITLE": "perfdb",
    "VERSION": "1",
    "OAS_VERSION": "3.1.0",
    "SERVE_INCLUDE_SCHEMA": False,
}

# --- Logs: one stream a process, which the supervisor or Docker keeps --------------------------------------
LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": os.environ.get("PERFDB_LOG_LEVEL", "INFO")},
}
