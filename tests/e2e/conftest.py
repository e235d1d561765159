"""A real browser before the real pages. Skipped, with the command that helps, where there is no Chromium."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.test import Client
from playwright.sync_api import Browser, BrowserContext, Error, Page, sync_playwright
from pytest_django.live_server_helper import LiveServer

from tests.web.data import World, build_world, person

ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]


@pytest.fixture(scope="module", autouse=True)
def browser_beside_django() -> Iterator[None]:
    """Playwright keeps an event loop in this thread, which Django would otherwise take for an asynchronous view."""
    before = os.environ.get("DJANGO_ALLOW_ASYNC_UNSAFE")
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
    yield
    if before is None:
        del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


@pytest.fixture(scope="module")
def browser(browser_beside_django: None) -> Iterator[Browser]:
    own = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        try:
            found = playwright.chromium.launch(executable_path=own, args=ARGUMENTS)
        except Error as error:
            pytest.skip(
                f"no Chromium; `playwright install --with-deps chromium` brings one: {error.message[:80]}"
            )
        yield found
        found.close()


@pytest.fixture
def world(transactional_db: None, tmp_path: Path, settings: object) -> Iterator[World]:
    from perfdb.config.celery import app

    settings.EMAIL_BACKEND = "perfdb.local.inbox.InboxEmailBackend"  # type: ignore[attr-defined]
    settings.EMAIL_INBOX = tmp_path / "inbox"  # type: ignore[attr-defined]
    app.conf.task_always_eager = True
    yield build_world()
    app.conf.task_always_eager = False


class Visitor:
    """A browser window and what its console said."""

    def __init__(self, context: BrowserContext, address: str) -> None:
        self.context = context
        self.address = address
        self.complaints: list[str] = []
        self.page: Page = context.new_page()
        self.page.on("console", lambda message: self._heard(message.type, message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _heard(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.complaints.append(text)

    def go(self, path: str) -> Page:
        self.page.goto(self.address + path, wait_until="load")
        return self.page


Open = Callable[..., Visitor]


@pytest.fixture
def visit(browser: Browser, live_server: LiveServer) -> Iterator[Open]:
    """`visit(width=390, scheme="dark", administrator=True)` opens a window."""
    contexts: list[BrowserContext] = []

    def open_window(*, width: int = 1440, scheme: str = "light", administrator: bool = False) -> Visitor:
        height = 900 if width > 600 else 844
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)  # type: ignore[arg-type]
        contexts.append(context)
        if administrator:
            session = Client()
            session.force_login(_root())
            secret = session.cookies["sessionid"].value
            context.add_cookies([{"name": "sessionid", "value": secret, "url": live_server.url}])
        return Visitor(context, live_server.url)

    yield open_window
    for context in contexts:
        context.close()


def _root() -> object:
    from django.contrib.auth.models import User

    return User.objects.filter(username="root").first() or person("root", superuser=True)
