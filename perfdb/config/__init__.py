"""Deployment: settings, Celery application, root URLs, WSGI entry point.

The Celery application is imported here so that `shared_task` binds to it in every process that has settings.
"""

from perfdb.config.celery import app as celery_app

__all__ = ["celery_app"]
