"""HTTP to the server: JSON, a bearer token, retries with back-off."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, quote, urlencode, urlsplit

import urllib3

from perfdb.client.settings import Server, UsageError

_TIMEOUT = urllib3.Timeout(connect=10.0, read=120.0)


def retries() -> urllib3.Retry:
    """Five more tries (PERFDB_RETRIES) with back-off: about 15 s until the server counts as away."""
    given = os.environ.get("PERFDB_RETRIES", "5")
    if not given.isdigit():
        raise UsageError(f"PERFDB_RETRIES: a whole number, got {given!r}")
    # Every request may be sent again: an upload carries its keys, so that the server stores it once.
    return urllib3.Retry(
        total=int(given),
        backoff_factor=0.5,
        status_forcelist=(429, 502, 503, 504),
        allowed_methods=None,
        raise_on_status=False,
    )


class ServerAway(Exception):
    """No answer, or one that says "later". What was to be sent is not lost by it."""


class Refused(Exception):
    """The server answered no. The message is its own."""

    def __init__(self, status: int, detail: str) -> None:
        self.status = status
        super().__init__(detail)


class Api:
    """One server and project. Raises ServerAway and Refused."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._pool = urllib3.PoolManager(retries=retries(), timeout=_TIMEOUT)

    def get(self, path: str, **params: str) -> Any:
        query = f"?{urlencode(params)}" if params else ""
        return self._call("GET", path + query, None)

    def post(self, path: str, body: bytes) -> Any:
        return self._call("POST", path, gzip.compress(body, 1))

    def delete(self, path: str) -> None:
        self._call("DELETE", path, None)

    def pages(self, path: str, name: str) -> Iterator[Any]:
        """Every row of a list, page by page."""
        params: dict[str, str] = {}
        while True:
            page = self.get(path, **params)
            yield from page[name]
            if not page["next"]:
                return
            params["cursor"] = parse_qs(urlsplit(page["next"]).query)["cursor"][0]

    def project_path(self, rest: str) -> str:
        return f"projects/{quote(self.server.project, safe='')}/{rest}"

    def _call(self, method: str, path: str, packed: bytes | None) -> Any:
        headers = {"Accept": "application/json", "User-Agent": "perfdb"}
        if self.server.token:
            headers["Authorization"] = f"Bearer {self.server.token}"
        if packed is not None:
            headers |= {"Content-Type": "application/json", "Content-Encoding": "gzip"}
        url = f"{self.server.url}/api/v1/{path}"
        try:
            answer = self._pool.request(method, url, body=packed, headers=headers)
        except urllib3.exceptions.HTTPError as error:
            raise ServerAway(f"{self.server.url} does not answer: {_cause(error)}") from None
        if answer.status >= 500 or answer.status == 429:
            raise ServerAway(f"{self.server.url} answered {answer.status}")
        if answer.status >= 400:
            raise Refused(answer.status, _detail(answer))
        if answer.status == 204:
            return None
        try:
            return json.loads(answer.data)
        except ValueError:
            raise Refused(
                answer.status, f"{url} did not answer with JSON: is this a perfdb server?"
            ) from None


def _cause(error: Exception) -> str:
    reason = getattr(error, "reason", None)
    return str(reason or error).split(": ", 1)[-1]


def _detail(answer: urllib3.BaseHTTPResponse) -> str:
    try:
        document = json.loads(answer.data)
    except ValueError:
        return f"status {answer.status}"
    rejected = document.get("rejected") or []
    lines = [str(document.get("detail") or document.get("title") or answer.status)]
    lines += [f"  {item.get('path')}: {item.get('reason')}" for item in rejected[:20]]
    return "\n".join(lines)
