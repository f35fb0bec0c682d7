"""Links between pages lead somewhere: on the site and in a plain repository view, whose anchors differ."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from markdown.extensions.toc import slugify
from support.snippets import CHECKOUT, pages

PAGES = [*pages(), CHECKOUT / "ARCHITECTURE.md", CHECKOUT / "CHANGELOG.md"]
_CODE = re.compile(r"^( *)(```|~~~).*?^\1\2[ ]*$|`[^`\n]*`", re.S | re.M)
_LINK = re.compile(r"\]\(([^)\s]+)\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(CHECKOUT).as_posix())
def test_every_link_leads_to_a_file_and_to_a_heading_of_it(page: Path) -> None:
    assert list(broken(page)) == []


def broken(page: Path) -> Iterator[str]:
    for link in _LINK.findall(_CODE.sub("", page.read_text(encoding="utf-8"))):
        path, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", link):
            continue
        file = (page.parent / path).resolve() if path else page
        if not file.exists():
            yield f"{link}: there is no such file"
        elif anchor and file.suffix == ".md":
            yield from (f"{link}: no heading has it {where}" for where in lacking(file, anchor))


def lacking(page: Path, anchor: str) -> list[str]:
    """Where the anchor doesn't name exactly one heading of the page."""
    return [where for where, anchors in anchors_of(page).items() if anchors[anchor] != 1]


@cache
def anchors_of(page: Path) -> dict[str, Counter[str]]:
    named = [text_of(heading) for heading in headings(page.read_text(encoding="utf-8"))]
    return {
        "on the site": Counter(slugify(heading, "-") for heading in named),
        "in a repository view": Counter(by_repository(heading) for heading in named),
    }


def headings(text: str) -> list[str]:
    return re.findall(r"^#{1,6} +(.+?) *$", re.sub(r"^( *)(```|~~~).*?^\1\2[ ]*$", "", text, flags=re.S | re.M), re.M)


def text_of(heading: str) -> str:
    """Without the marks of code and of emphasis, and with a link's text alone."""
    return re.sub(r"[`*]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading))


def by_repository(heading: str) -> str:
    """The anchor of GitHub's view: each blank becomes a hyphen, also where a sign between two of them was left out."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize(
    ("heading", "site", "repository"),
    [
        ("A table, by `name`", "a-table-by-name", "a-table-by-name"),
        ("With `--deep`: the rows", "with-deep-the-rows", "with---deep-the-rows"),
        ("[Sinks](sinks.md) and *upserts*", "sinks-and-upserts", "sinks-and-upserts"),
    ],
)
def test_the_two_views_name_a_heading_in_their_own_ways(heading: str, site: str, repository: str) -> None:
    assert (slugify(text_of(heading), "-"), by_repository(text_of(heading))) == (site, repository)


def test_a_link_is_broken_without_its_file_its_heading_or_with_two_such_headings(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# One\n## Two\n## Two\n## A - b\n```bash\n# Three\n```\n[a](#one) [b](#two) [c](#a-b) [d](#three) [e](x.md)"
    )
    assert [told.partition(":")[0] for told in broken(page)] == ["#two", "#two", "#a-b", "#three", "#three", "x.md"]
