"""The blocks of code in the documentation."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
# Pages that are made from code and tests, which have tests of their own.
MADE = frozenset(CHECKOUT / "docs" / "reference" / name for name in ("commands.md", "messages.md", "rule-file.md"))
_BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.S | re.M)


@dataclass(frozen=True)
class Snippet:
    """`page`: its file; `line`: where in it; `kind`: the language it is said to be."""

    page: Path
    line: int
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(CHECKOUT)}:{self.line}"


def pages() -> list[Path]:
    return [CHECKOUT / "README.md", CHECKOUT / "CONTRIBUTING.md", *sorted((CHECKOUT / "docs").rglob("*.md"))]


def snippets(*kinds: str) -> list[Snippet]:
    """Those of these kinds; without any, all. Not those of made pages."""
    written = (page for page in pages() if page not in MADE)
    return [one for page in written for one in of_page(page) if not kinds or one.kind in kinds]


def of_page(page: Path) -> Iterator[Snippet]:
    text = page.read_text(encoding="utf-8")
    for match in _BLOCK.finditer(text):
        yield Snippet(page, text.count("\n", 0, match.start()) + 2, match[2], textwrap.dedent(match[3]))


def commands(text: str) -> Iterator[list[str]]:
    """The words of each command of a shell's text, without its settings of variables."""
    joined = text.replace("\\\n", " ")
    for line in joined.splitlines():
        words: list[str] = []
        for word in [*shlex.split(line, comments=True), "&&"]:
            if word in ("&&", "|", ";", "||"):
                if words:
                    yield words
                words = []
            elif words or not re.match(r"[A-Z_]+=", word):
                words.append(word)
