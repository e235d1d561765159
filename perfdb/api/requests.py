"""What every view of the API shares: reading a request, answering in pages, and the marks of an answer."""

from __future__ import annotations

import re
import uuid
import zlib
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec
from django.db.models import Model, QuerySet
from django.views.decorators.http import conditional_page
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.throttling import AnonRateThrottle, UserRateThrottle
from rest_framework.views import APIView

from perfdb.api.problems import Problem
from perfdb.models import ApiToken

MAX_BODY = 64 * 1024 * 1024
PAGE, MOST = 100, 1000
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
T = TypeVar("T")
Row = TypeVar("Row", bound=Model)


class CallerThrottle(UserRateThrottle):
    """A person or a token has a budget of its own, wherever it calls from."""

    def get_cache_key(self, request: Request, view: APIView) -> str | None:
        if isinstance(request.auth, ApiToken):
            return self.cache_format % {"scope": self.scope, "ident": f"token{request.auth.pk}"}
        return super().get_cache_key(request, view) if request.user.is_authenticated else None


class VisitorThrottle(AnonRateThrottle):
    """Without token or login the address counts."""

    def get_cache_key(self, request: Request, view: APIView) -> str | None:
        return None if request.auth is not None else super().get_cache_key(request, view)


class View(APIView):
    """Base of all views: conditional GET by ETag, a request id on every answer, rate limits by caller."""

    throttle_classes = (CallerThrottle, VisitorThrottle)

    @classmethod
    def as_view(cls, **initkwargs: Any) -> Any:
        return conditional_page(super().as_view(**initkwargs))

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        response = super().finalize_response(request, response, *args, **kwargs)
        given = request.META.get("HTTP_X_REQUEST_ID", "")
        response["X-Request-ID"] = given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
        return response


def body(request: Request) -> bytes:
    """The request's bytes, unpacked if gzipped. Raises Problem 413 beyond MAX_BODY, packed or not."""
    declared = int(request.META.get("CONTENT_LENGTH") or 0)
    if declared > MAX_BODY:
        raise Problem(f"the body has {declared} bytes, at most {MAX_BODY} are taken", status_code=413)
    raw = request._request.body
    if request.META.get("HTTP_CONTENT_ENCODING", "").lower() == "gzip":
        unpack = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
        try:
            raw = unpack.decompress(raw, MAX_BODY + 1)
        except zlib.error as error:
            raise Problem(f"the body is not gzip: {error}", status_code=400) from None
        if not unpack.eof and len(raw) <= MAX_BODY:
            raise Problem("the body is not gzip: it ends too early", status_code=400)
    if len(raw) > MAX_BODY:
        raise Problem(f"the unpacked body has more than {MAX_BODY} bytes", status_code=413)
    return raw


def decoded(request: Request, decode: Callable[[bytes], T]) -> T:
    """The body as `decode` reads it. Raises Problem naming the path of the field that does not fit."""
    try:
        raw = body(request)
        if b"\\u0000" in raw:
            raise Problem(
                "the body holds a NUL character (\\u0000), which no stored text can", status_code=422
            )
        return decode(raw)
    except msgspec.ValidationError as error:
        raise Problem(str(error), status_code=422) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Problem(f"the body is not JSON: {error}", status_code=400) from None


def paged(
    request: Request, rows: QuerySet[Row], name: str, show: Callable[[Row], Mapping[str, Any]]
) -> Response:
    """Newest first; `cursor` is the id after which to go on, `next` the address of the following page."""
    cursor, limit = request.query_params.get("cursor"), request.query_params.get("limit", str(PAGE))
    if not _is_number(limit) or not 1 <= int(limit) <= MOST:
        raise Problem(f"limit: a whole number from 1 to {MOST}, got {limit!r}", status_code=400)
    if cursor:
        if not _is_number(cursor):
            raise Problem(f"cursor: {cursor!r} is no cursor of this list", status_code=400)
        rows = rows.filter(pk__lt=int(cursor))
    size = int(limit)
    page = list(rows.order_by("-pk")[: size + 1])
    shown = page[:size]
    following = None
    if len(page) > size:
        params = request.query_params.copy()
        params["cursor"] = str(shown[-1].pk)
        following = request.build_absolute_uri(f"{request.path}?{params.urlencode()}")
    return Response({name: [show(row) for row in shown], "next": following})


def _is_number(text: str) -> bool:
    """Digits of ASCII that fit into the database's 64 bits."""
    return text.isascii() and text.isdigit() and len(text) <= 18


def text_parameter(request: Request, name: str) -> str:
    """A parameter's text, empty where it is not given. Raises Problem for a NUL, which no stored text holds."""
    value = request.query_params.get(name, "")
    if "\x00" in value:
        raise Problem(f"{name}: holds a NUL character", status_code=400)
    return value


def parameter(request: Request, name: str) -> str:
    value = text_parameter(request, name)
    if not value:
        raise Problem(f"the parameter {name!r} is missing", status_code=400)
    return value


def whole_number(request: Request, name: str, *, least: int) -> int | None:
    """A parameter as a number, None where it is not given."""
    text = text_parameter(request, name)
    if not text:
        return None
    if not _is_number(text) or int(text) < least:
        raise Problem(f"{name}: a whole number of at least {least}, got {text!r}", status_code=400)
    return int(text)
