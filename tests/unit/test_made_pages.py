"""The pages that are made from the code are as the code is; a plain repository view shows them, too."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
from support.snippets import MADE

CHECKOUT = Path(__file__).parents[2]
PAGES = ("reference/commands.md", "reference/messages.md", "reference/rule-file.md")


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    found = importlib.util.spec_from_file_location("site_pages", CHECKOUT / "scripts/site_pages.py")
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[found.name] = module
    found.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", PAGES)
def test_a_made_page_is_what_the_code_makes_now(maker: ModuleType, page: str) -> None:
    stored = (CHECKOUT / "docs" / page).read_text(encoding="utf-8")
    assert stored == maker.MADE[page](), "`make pages` writes it again"


def test_all_made_pages_are_known(maker: ModuleType) -> None:
    assert set(PAGES) == set(maker.MADE)
    assert {CHECKOUT / "docs" / page for page in PAGES} == MADE


@pytest.mark.parametrize("page", PAGES)
def test_a_made_page_reads_as_plain_markdown(page: str) -> None:
    """One title, fences that are closed, rows of tables with as many cells as their heads."""
    text = (CHECKOUT / "docs" / page).read_text(encoding="utf-8")
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.S | re.M)
    assert text.startswith("# ") and len(re.findall("^# ", prose, re.M)) == 1 and "```" not in prose
    for table in re.findall(r"(?:^\|.*\n)+", prose, re.M):
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()}) == 1, table
