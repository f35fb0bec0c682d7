"""Every page of the documentation site, in light and dark, on a wide and a narrow screen."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page
from support.site import build

pytestmark = pytest.mark.prove
WIDE, NARROW = 1280, 390  # pixels: a laptop, and a telephone
# What a person would see at once. Tables and code may scroll, the page may not.
LOOK = """() => ({
    title: document.querySelector("h1")?.innerText ?? "",
    overflow: document.documentElement.scrollWidth - window.innerWidth,
    pictures: [...document.images].filter(one => !one.naturalWidth).map(one => one.src),
    palette: document.body.dataset.mdColorScheme,
})"""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """The requests are of no interest."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def seen(page: Page, url: str, palette: str) -> list[str]:
    """The problems of a page."""
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(f"script: {error}"))
    page.on("requestfailed", lambda request: problems.append(f"not loaded: {request.url}"))
    page.on("response", lambda answer: None if answer.ok else problems.append(f"{answer.status}: {answer.url}"))
    page.goto(url, wait_until="load")
    look = page.evaluate(LOOK)
    if not look["title"]:
        problems.append("no title")
    if look["palette"] != palette:
        problems.append(f"expected the colours of {palette}, found {look['palette']}")
    if look["overflow"] > 0:
        problems.append(f"{look['overflow']} pixels wider than the screen")
    return problems + [f"no picture: {one}" for one in look["pictures"]]


@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize(("scheme", "palette"), [("light", "default"), ("dark", "slate")])
def test_every_page_fits_the_screen_and_loads_all_that_it_names(
    browser: Browser, site: Path, address: str, scheme: Literal["light", "dark"], palette: str, width: int
) -> None:
    pages = sorted(str(one.relative_to(site)) for one in site.rglob("*.html") if one.name != "404.html")
    assert len(pages) > 60
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900})
    problems = {}
    for name in pages:
        page = context.new_page()
        problems[name] = seen(page, f"{address}/{name}", palette)
        page.close()
    context.close()
    assert {name: found for name, found in problems.items() if found} == {}


def search(page: Page, address: str, words: str) -> None:
    page.goto(address)
    page.get_by_placeholder("Search").click()  # the index is loaded once somebody wants to search
    page.get_by_placeholder("Search").press_sequentially(words)


def test_the_search_finds_a_page(browser: Browser, address: str) -> None:
    page = browser.new_page(viewport={"width": WIDE, "height": 900})
    search(page, address, "watermark")
    page.locator(".md-search-result__link", has_text="Event time, watermarks and late data").first.click()
    page.wait_for_url("**/concepts/event-time.html*")
    page.close()


def test_the_search_puts_pages_for_users_before_those_for_developers(browser: Browser, address: str) -> None:
    """A title of a decision has `latest`, which begins with `late`."""
    page = browser.new_page(viewport={"width": WIDE, "height": 900})
    search(page, address, "late rows")
    page.locator(".md-search-result__link").first.wait_for()
    found = [str(one.get_attribute("href")) for one in page.locator(".md-search-result__link").all()[:5]]
    assert [one for one in found if "/adr/" in one] == []
    page.close()


def test_the_search_finds_a_word_in_brackets(browser: Browser, address: str) -> None:
    page = browser.new_page(viewport={"width": WIDE, "height": 900})
    search(page, address, "GDPR")
    page.locator(".md-search-result__link", has_text="Delete personal data").first.wait_for()
    page.close()
