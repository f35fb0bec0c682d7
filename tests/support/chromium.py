"""Chromium, driven by Playwright: the system's, or the one that Playwright has downloaded."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Playwright, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")


def program(playwright: Playwright) -> str:
    """Raises FileNotFoundError that says what to install."""
    own = playwright.chromium.executable_path
    found = own if Path(own).exists() else next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        raise FileNotFoundError(
            f"expected {', '.join(NAMES)} on PATH, or Playwright's own browser: sudo apt-get install chromium, or "
            ".venv/bin/playwright install chromium"
        )
    return found


@contextmanager
def opened() -> Iterator[Browser]:
    """A browser without a window."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program(playwright))
        yield browser
        browser.close()
