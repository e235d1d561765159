"""The pages in a real browser.

PERFDB_PICTURES=1 writes the screenshot of the README anew (docs/pictures/dashboard.png); PERFDB_LOOK=FOLDER keeps a
picture of every page there, wide and narrow, light and dark, for a person to look at.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from perfdb.models import Job, JobState, Worker
from perfdb.services import schedule
from tests.e2e.conftest import Open
from tests.web.data import PASSWORD, World, person

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
PICTURE = Path(__file__).parents[2] / "docs" / "pictures" / "dashboard.png"
MAX_PICTURE_BYTES = 250_000
MIN_CONTRAST = 4.5

# The smallest ratio of WCAG 2 between a text's colour and the nearest opaque background behind it.
CONTRAST = """() => {
  const parse = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const opaque = (colour) => colour.length < 4 || colour[3] === 1;
  const linear = (v) => v / 255 <= 0.03928 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const behind = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (opaque(colour)) return colour;
    }
    return [255, 255, 255];
  };
  let worst = { ratio: 99, text: "" };
  for (const node of document.querySelectorAll("main *, header *, footer")) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    if (!own || node.closest("svg, .js-plotly-plot, script") || !node.getClientRects().length) continue;
    const front = light(parse(getComputedStyle(node).color)), back = light(behind(node));
    const ratio = (Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05);
    if (ratio < worst.ratio) worst = { ratio, text: node.outerHTML.slice(0, 160) };
  }
  return worst;
}"""
WIDER_THAN_WINDOW = """() => document.documentElement.scrollWidth - document.documentElement.clientWidth"""


def drawn(page: Page) -> None:
    """Wait until every chart of the page is there."""
    charts = page.locator("[data-chart]")
    for number in range(charts.count()):
        expect(charts.nth(number).locator(".main-svg").first).to_be_visible()


@pytest.mark.timeout(400)
@pytest.mark.parametrize("width", [1440, 390])
def test_every_page_fits_reads_well_and_does_not_complain(world: World, visit: Open, width: int) -> None:
    look = os.environ.get("PERFDB_LOOK")
    for scheme in ("light", "dark"):
        window = visit(width=width, scheme=scheme, administrator=True)
        for name, path in {**world.pages(), "login": "/login/"}.items():
            page = window.go(path)
            drawn(page)
            if look:
                page.screenshot(path=Path(look) / f"{name}-{width}-{scheme}.png", full_page=True)
            assert page.evaluate(WIDER_THAN_WINDOW) <= 0, (name, scheme)
            worst = page.evaluate(CONTRAST)
            assert worst["ratio"] >= MIN_CONTRAST, (name, scheme, worst)
        assert window.complaints == [], scheme


def test_a_click_on_the_series_opens_the_commit(world: World, visit: Open) -> None:
    window = visit()
    page = window.go(world.pages()["series"])
    drawn(page)
    points = page.locator(".scatterlayer .trace").nth(1).locator(".point")
    assert points.count() == len(world.shas) - 1
    points.nth(world.culprit - 1).click(force=True)
    page.wait_for_url(re.compile(f"/commits/{world.shas[world.culprit]}/"))
    expect(page.get_by_text("First bad commit of")).to_be_visible()
    assert window.complaints == []


def test_the_theme_is_kept(world: World, visit: Open) -> None:
    page = visit(scheme="light").go(world.pages()["series"])
    drawn(page)
    background = "() => getComputedStyle(document.body).backgroundColor"
    bright = page.evaluate(background)
    page.get_by_role("button", name="Light or dark").click()
    dark = page.evaluate(background)
    assert dark != bright
    page.reload()
    assert page.evaluate(background) == dark
    drawn(page)


def test_signing_in_and_acknowledging(world: World, visit: Open) -> None:
    person("tess", world.project, "triager")
    page = visit().go(world.pages()["alert"])
    expect(page.get_by_role("button", name="Apply")).to_have_count(0)
    page.get_by_role("link", name="Sign in").click()
    page.get_by_label("Name").fill("tess")
    page.get_by_label("Password").fill(PASSWORD)
    page.locator("main").get_by_role("button", name="Sign in").click()
    page.wait_for_url(re.compile(r"/alerts/\d+/"))
    page.get_by_label("Comment").fill("known since Monday")
    page.get_by_label("New state").select_option("acknowledged")
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_text("known since Monday")).to_be_visible()
    world.alert.refresh_from_db()
    assert world.alert.state == "acknowledged"


def test_the_picture_of_the_readme(world: World, visit: Open, tmp_path: Path) -> None:
    target = PICTURE if os.environ.get("PERFDB_PICTURES") else tmp_path / "dashboard.png"
    page = visit().go(world.pages()["project"])
    expect(page.locator("svg.spark").first).to_be_visible()
    page.screenshot(path=target)
    assert 10_000 < target.stat().st_size < MAX_PICTURE_BYTES


def test_work_under_way_is_seen_without_reloading(world: World, visit: Open) -> None:
    window = visit()
    page = window.go(world.pages()["project"])
    expect(page.locator("#under-way")).to_contain_text("queued")
    job = Job.objects.get(project=world.project, state=JobState.QUEUED)
    assert Job.objects.claim(job.pk, Worker.objects.get())
    job.refresh_from_db()
    schedule.beat(job, progress={"launch": 2, "launches": 5, "cases": ["softmax"]})
    expect(page.locator("#under-way")).to_contain_text("launch 2 of 5: softmax", timeout=15_000)
    schedule.finish(job, JobState.DONE)
    expect(page.locator("#under-way")).to_contain_text("No job waits or runs", timeout=15_000)
    assert window.complaints == []
