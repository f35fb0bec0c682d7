"""What tests of every level share."""

from __future__ import annotations

import gc
import shutil
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import settings

from floodmark.core.process import loading

# How long an example takes says more of what else the machine does than of the code.
settings.register_profile("floodmark", deadline=None)
settings.load_profile("floodmark")

CHECKOUT = Path(__file__).parents[1]


def pytest_configure() -> None:
    """What is collected stays for the whole session: nothing looks through it for garbage, now or later."""
    gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that only `make prove` runs get an hour. A limit that strikes within a call into the JVM breaks the
    connection, and so all tests after it."""
    for item in items:
        if item.get_closest_marker("prove") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(3600))


@pytest.fixture
def place() -> Iterator[Path]:
    """A lasting directory of the test's own: a rule's home in the system's temporary directory is refused."""
    yield from _lasting()


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    """The same for all tests of a module."""
    yield from _lasting()


@pytest.fixture(autouse=True)
def _any_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages that a test served in this process forbid it the code of rules; other tests need it."""
    monkeypatch.setattr(loading, "_forbidden", [])


def _lasting() -> Iterator[Path]:
    path = CHECKOUT / ".cache" / "tests" / uuid4().hex
    path.mkdir(parents=True)
    yield path
    shutil.rmtree(path, ignore_errors=True)
