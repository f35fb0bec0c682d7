"""Prints facts: as text, and as one JSON document."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

FORMAT = 1  # of every printed JSON document; docs/reference/json.md describes the documents
WIDE = 400  # width of a table that goes into a file or a pipe, so that it never wraps


def console(*, err: bool = False) -> Console:
    """A console on the current stream; wide if that is no terminal."""
    from rich.console import Console  # takes a tenth of a second, which an idle run saves

    stream = (sys.stderr if err else sys.stdout) or StringIO()  # Python has none where the caller has closed it
    width = None if stream.isatty() else WIDE
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False)


def say(text: str = "", *, err: bool = False) -> None:
    """Print one or several lines without wrapping."""
    print(text, file=sys.stderr if err else sys.stdout, flush=True)


def print_error(text: str) -> None:
    say(f"error: {text}", err=True)


def print_json(facts: Mapping[str, Any]) -> None:
    """Print the JSON document of a command with --json. NaN and infinities, which JSON lacks, become text."""
    plain = json.loads(json.dumps({"format": FORMAT, **facts}, default=str), parse_constant=str)
    print(json.dumps(plain, indent=2, ensure_ascii=False, allow_nan=False))


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], title: str | None = None) -> None:
    """Print a plain table; numbers are right-aligned."""
    from rich.table import Table
    from rich.text import Text

    rows = list(rows)
    found = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for at, name in enumerate(columns):
        numbers = bool(rows) and all(isinstance(row[at], int | float | None) for row in rows)
        found.add_column(Text(name), justify="right" if numbers else "left")
    for row in rows:
        found.add_row(*(Text(cell(value)) for value in row))
    console().print(found)


def cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1 else f"{value:.1f}"
    return str(value)


def is_terminal() -> bool:
    """Whether output goes to a terminal."""
    return sys.stdout is not None and sys.stdout.isatty()
