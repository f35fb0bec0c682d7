"""The console as a sink, for experiments: at least once, because a retried epoch prints again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from pydantic import BeforeValidator

from floodmark.core.rules.kinds import SinkCan, SinkKind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SHOWN = 20


@dataclass(frozen=True)
class Excerpt:
    """An epoch's first rows as text; `rows`: how many it has."""

    columns: tuple[str, ...]
    first: tuple[tuple[str, ...], ...]
    rows: int


def excerpt_of(frame: DataFrame, rows: int) -> Excerpt:
    """The first rows of a frame, to print. `rows`: how many it has."""
    return Excerpt(tuple(frame.columns), tuple(tuple(map(str, row)) for row in frame.take(SHOWN)), rows)


def show(shown: Excerpt, epoch: int) -> None:
    """Print the epoch's first rows to standard output."""
    from rich.console import Console
    from rich.table import Table

    table = Table()
    for name in shown.columns:
        table.add_column(name)
    for row in shown.first:
        table.add_row(*row)
    screen = Console()
    # The table has no title, because rich would wrap it to the table's width.
    screen.print(f"epoch {epoch}: {shown.rows} rows (console: at least once)")
    screen.print(table)


def _true(value: object) -> object:
    if value not in (True, None, {}):
        raise ValueError("expected true")
    return True


SINK = SinkKind(
    written=Annotated[bool, BeforeValidator(_true)],
    summary="true: print the rows of each epoch; needs a `qos` below 2",
    can=SinkCan(qos=1, stores_rows=False),
    address=lambda _: None,
)
