"""Every error of the API is an RFC 9457 problem: `application/problem+json` with type, title, status and detail."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import Http404
from rest_framework import exceptions, status
from rest_framework.response import Response

MEDIA_TYPE = "application/problem+json"


class Problem(exceptions.APIException):
    """Raise it with what is wrong and where. `extra` members are added to the document."""

    def __init__(self, detail: str, *, status_code: int = 400, title: str = "", **extra: Any) -> None:
        super().__init__(detail)
        self.status_code = status_code
        self.title = title
        self.extra = extra


def problem_response(error: Exception, context: dict[str, Any]) -> Response | None:
    """DRF's exception handler. None (a server error) for what is no error of the request."""
    if isinstance(error, Http404):
        error = exceptions.NotFound()
    elif isinstance(error, PermissionDenied):
        error = exceptions.PermissionDenied()
    if not isinstance(error, exceptions.APIException):
        return None
    document: dict[str, Any] = {
        "type": "about:blank",
        "title": getattr(error, "title", "") or _title(error),
        "status": error.status_code,
        "detail": _detail(error),
        "instance": context["request"].path if context.get("request") else "",
    }
    document |= getattr(error, "extra", {})
    headers = {}
    if getattr(error, "auth_header", None):
        headers["WWW-Authenticate"] = error.auth_header  # type: ignore[attr-defined]  # set by DRF
    if getattr(error, "wait", None):
        headers["Retry-After"] = str(int(error.wait) + 1)  # type: ignore[attr-defined]  # set by DRF
    return Response(document, status=error.status_code, headers=headers, content_type=MEDIA_TYPE)


def _title(error: exceptions.APIException) -> str:
    return {
        status.HTTP_400_BAD_REQUEST: "Bad request",
        status.HTTP_401_UNAUTHORIZED: "Not authenticated",
        status.HTTP_403_FORBIDDEN: "Not allowed",
        status.HTTP_404_NOT_FOUND: "Not found",
        status.HTTP_405_METHOD_NOT_ALLOWED: "Method not allowed",
        status.HTTP_409_CONFLICT: "Conflict",
        status.HTTP_413_REQUEST_ENTITY_TOO_LARGE: "Too large",
        status.HTTP_415_UNSUPPORTED_MEDIA_TYPE: "Unsupported media type",
        status.HTTP_422_UNPROCESSABLE_ENTITY: "Does not fit",
        status.HTTP_429_TOO_MANY_REQUESTS: "Too many requests",
    }.get(error.status_code, "Error")


def _detail(error: exceptions.APIException) -> str:
    detail = error.detail
    if isinstance(detail, dict):
        return "; ".join(f"{key}: {_plain(value)}" for key, value in detail.items())
    return _plain(detail)


def _plain(value: Any) -> str:
    return "; ".join(map(str, value)) if isinstance(value, list) else str(value)
