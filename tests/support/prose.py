"""How easily prose reads: lengths of sentences, pointer words without nouns, and how sentences open.

PYTHONPATH=tests python -m support.prose FILE...     one line of figures a file, then its longest sentences
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

POINTERS = frozenset("that this these those it its one ones which what who whom whose there such so".split())
OPENERS = frozenset("what who whoever where whichever of so is are not nor nothing nobody only to".split())
ABBREVIATIONS = ("e.g.", "i.e.", "etc.", "vs.", "approx.")
SENTENCE_END = re.compile(r"(?<=[.!?…])[)\"'*_]*\s+(?=[A-Z0-9\"'(\[`*])")
WORD = re.compile(r"[A-Za-z0-9_][\w'/.-]*")


@dataclass(frozen=True)
class Prose:
    """The sentences of a page, without code, tables, headings and the targets of links."""

    sentences: tuple[str, ...]

    @property
    def words(self) -> list[str]:
        return [word for sentence in self.sentences for word in words(sentence)]

    def longer(self, limit: int) -> list[str]:
        return [sentence for sentence in self.sentences if len(words(sentence)) > limit]

    @property
    def pointers(self) -> float:
        """Pointer words of 100 words."""
        found = self.words
        return 100 * sum(word in POINTERS for word in found) / max(1, len(found))

    @property
    def openers(self) -> float:
        """Sentences of 100 that open with a bare what, who, of, so and the like."""
        return 100 * sum(words(one)[0] in OPENERS for one in self.sentences) / max(1, len(self.sentences))

    @property
    def mean(self) -> float:
        return len(self.words) / max(1, len(self.sentences))


def words(text: str) -> list[str]:
    return [word.lower().strip("/.-'") for word in WORD.findall(text.replace("\N{RIGHT SINGLE QUOTATION MARK}", "'"))]


def prose(text: str) -> Prose:
    return Prose(tuple(sentence for part in _parts(text) for sentence in _sentences(part)))


def _parts(text: str) -> Iterator[str]:
    """Paragraphs and items of lists, each in one line."""
    text = re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.S)
    text = re.sub(r"^( *)(```|~~~).*?^\1\2[ ]*$", "", text, flags=re.S | re.M)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.S)
    part: list[str] = []
    for line in [*text.splitlines(), ""]:
        bare = line.strip()
        item = re.match(r"([-*+]|\d+\.)\s+", bare)
        skipped = bare.startswith(("#", "|", "!!!", "???", "![", "<", ":::", "[!")) or line.startswith(("    ", "\t"))
        if not bare or item or skipped:
            if part:
                yield " ".join(part)
            part = []
        if bare and not (skipped and not item):
            part.append(bare[item.end() :] if item else bare.lstrip("> "))


def _sentences(part: str) -> Iterator[str]:
    part = re.sub(r"`+[^`]*`+", "Code", part)  # which may begin a sentence
    part = re.sub(r"!?\[([^\]]*)\](\([^)]*\)|\[[^\]]*\])", r"\1", part)
    part = re.sub(r"[*_]{1,3}(\S(?:.*?\S)?)[*_]{1,3}", r"\1", part)
    for short in ABBREVIATIONS:
        part = part.replace(short, short.replace(".", ""))
    yield from (one for one in SENTENCE_END.split(part) if words(one))


def main(paths: list[str]) -> None:
    print(f"{'words':>6} {'mean':>5} {'>25':>4} {'>30':>4} {'>40':>4} {'pointers':>9} {'openers':>8}")
    for path in paths:
        found = prose(Path(path).read_text(encoding="utf-8"))
        counts = " ".join(f"{len(found.longer(limit)):4}" for limit in (25, 30, 40))
        print(f"{len(found.words):6} {found.mean:5.1f} {counts} {found.pointers:8.1f}% {found.openers:7.1f}%  {path}")
        for sentence in sorted(found.longer(30), key=len)[-5:] if len(paths) < 4 else ():
            print(f"       {len(words(sentence))}: {sentence}")


if __name__ == "__main__":
    main(sys.argv[1:])
