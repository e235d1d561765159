"""WSGI entry point of the web process."""

import os

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "perfdb.config.settings")

application = get_wsgi_application()

if settings.SECRET_KEY_IS_EPHEMERAL:
    raise ImproperlyConfigured(
        "No secret key: sessions would end with this process. Set PERFDB_SECRET_KEY, or start with "
        "`python manage.py up`, which makes one."
    )
