"""The console as a sink, for trying things: at least once, for a retried epoch prints again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SHOWN = 20


def show(frame: DataFrame, rows: int, epoch: int) -> None:
    """Print the epoch's first rows to standard output."""
    table = Table()
    for name in frame.columns:
        table.add_column(name)
    for row in frame.take(SHOWN):
        table.add_row(*(str(value) for value in row))
    shown = Console()
    shown.print(f"epoch {epoch}: {rows} rows (console: at least once)")  # a title would be as narrow as its table
    shown.print(table)
