"""The health check: can this process reach what it needs?"""

import redis
from django.conf import settings
from django.db import DatabaseError, connection
from django.http import HttpRequest, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe


@never_cache
@require_safe
def healthz(request: HttpRequest) -> JsonResponse:
    """200 when the database and the broker answer, else 503; says which, never why (that is in the log)."""
    parts = {"database": _database_answers(), "broker": _broker_answers()}
    healthy = all(parts.values())
    body = {
        "status": "ok" if healthy else "failing",
        **{name: "ok" if up else "failing" for name, up in parts.items()},
    }
    return JsonResponse(body, status=200 if healthy else 503)


def _database_answers() -> bool:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError:
        return False
    return True


def _broker_answers() -> bool:
    with redis.Redis.from_url(settings.REDIS_URL, socket_timeout=2, socket_connect_timeout=2) as client:
        try:
            return bool(client.ping())
        except redis.RedisError:
            return False
