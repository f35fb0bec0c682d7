"""One browser for all tests that look at the UI; Airflow is started by the scripts that start it for people."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from playwright.sync_api import Browser
from support import chromium


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with chromium.opened() as found:
        yield found
