"""How facts are printed: for people, and as one JSON document."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

FORMAT = 1  # of every JSON document that is printed; docs/reference/json.md says what it holds
WIDE = 400  # columns of a table that goes into a file or a pipe: never folded


def console(*, err: bool = False) -> Console:
    """A console on the stream as it is now; wide where nobody looks at it."""
    from rich.console import Console  # a tenth of a second, which a run with nothing to do can spare

    stream = sys.stderr if err else sys.stdout
    width = None if stream.isatty() else WIDE
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False)


def say(text: str = "", *, err: bool = False) -> None:
    """One line (or several) as it is, never folded."""
    print(text, file=sys.stderr if err else sys.stdout, flush=True)


def complain(text: str) -> None:
    say(f"error: {text}", err=True)


def document(facts: Mapping[str, Any]) -> None:
    """The one JSON document of a command with --json. NaN and infinities, which JSON has not, are text in it."""
    plain = json.loads(json.dumps({"format": FORMAT, **facts}, default=str), parse_constant=str)
    print(json.dumps(plain, indent=2, ensure_ascii=False, allow_nan=False))


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], title: str | None = None) -> None:
    """A plain table; numbers stand to the right."""
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


def watched() -> bool:
    """Whether a person reads what is printed, at a terminal."""
    return sys.stdout.isatty()
