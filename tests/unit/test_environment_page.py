"""The page of environment variables lists every variable that the code reads, and no other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from floodmark.core.health.settings import KNOWN, OTHERS
from floodmark.core.rules.installation import VARIABLES

CHECKOUT = Path(__file__).parents[2]
PAGE = (CHECKOUT / "docs" / "reference" / "environment-variables.md").read_text(encoding="utf-8")
TEXT = (".py", ".yaml", ".sh", "")
_NAME = re.compile(r"\bFLOODMARK_[A-Z_]*[A-Z]\b")
LISTED = frozenset(_NAME.findall(PAGE))


def _named_in(*places: str) -> set[str]:
    """The variables that files of the checkout name."""
    roots = [CHECKOUT / place for place in places]
    files = [file for root in roots for file in ([root] if root.is_file() else root.rglob("*"))]
    texts = (file.read_text(encoding="utf-8") for file in files if file.is_file() and file.suffix in TEXT)
    return {name for text in texts for name in _NAME.findall(text)}


@pytest.fixture(scope="module")
def named() -> set[str]:
    files = ("jobs", "plugins", "dags", "scripts", "tests/support", "tests/conftest.py", "tests/unit/test_mistakes.py")
    return _named_in(*files, "Makefile", "docker-compose.yaml")


def test_every_variable_that_jobs_and_plugins_read_is_listed() -> None:
    assert not _named_in("jobs", "plugins", "dags") - set(OTHERS) - LISTED
    assert set(KNOWN) <= LISTED


def test_no_variable_is_listed_that_nothing_reads(named: set[str]) -> None:
    assert not LISTED - named


@pytest.mark.parametrize(("name", "place"), VARIABLES.items(), ids=VARIABLES)
def test_a_default_is_listed_with_the_key_that_it_sets(name: str, place: tuple[str, ...]) -> None:
    row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{name}`"))
    key, *inside = place
    assert (f"`{key}: {{{inside[0]}}}`" if inside else key) in row
