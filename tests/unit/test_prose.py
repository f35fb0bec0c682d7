"""Pages can be read: no sentence is too long, and few words point at nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.prose import Prose, prose
from support.snippets import MADE, pages

CHECKOUT = Path(__file__).parents[2]
PAGES = [page for page in pages() if page not in MADE and "adr" not in page.parts]
# By the same count, 40 pages of bytewax 9fce5b6 (README, guide, tutorials) have 4.3 % and 4.5 %.
MOST_POINTERS, MOST_OPENERS = 1.3 * 4.36, 1.3 * 4.49


def read(page: Path) -> Prose:
    return prose(page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(CHECKOUT).as_posix())
def test_no_sentence_is_too_long(page: Path) -> None:
    limit = 40 if "reference" in page.parts else 30
    assert read(page).longer(limit) == []


def test_pages_point_and_open_little_more_often_than_those_of_a_project_that_reads_well() -> None:
    whole = Prose(tuple(sentence for page in PAGES for sentence in read(page).sentences))
    assert whole.pointers <= MOST_POINTERS
    assert whole.openers <= MOST_OPENERS


TEXT = """\
---
title: x
---
# So is this heading

A rule runs. It has `a long span of code` in
[a link](there.md) of **two lines**. (See e.g. Spark.)

- What it reads is a table
- Streams grow

| this | table |
|---|---|

```text
So this is no prose. Nor this.
```
"""


def test_sentences_are_of_paragraphs_and_items_without_code_tables_and_headings() -> None:
    found = prose(TEXT)
    assert list(found.sentences) == [
        "A rule runs.",
        "It has Code in a link of two lines.",
        "(See eg Spark.)",
        "What it reads is a table",
        "Streams grow",
    ]
    assert len(found.words) == 3 + 9 + 3 + 6 + 2
    assert found.pointers == pytest.approx(100 * 3 / 23)
    assert found.openers == 100 / 5
    assert found.longer(8) == ["It has Code in a link of two lines."]
    assert found.longer(9) == []
