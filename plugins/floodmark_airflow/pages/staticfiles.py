"""The files of the pages: templates (Jinja) and their filters, and static files for the browser."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from floodmark.core.text.tablenames import table_label
from floodmark.views.formats import duration, iso, size
from floodmark_airflow.pages.strip import strip

HERE = Path(__file__).parent
TIME = re.compile(r"^([+-]?\d{4,}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)[\d.]*(Z|\+00:00)?$")
TYPES = {".js": "text/javascript", ".css": "text/css", "": "text/plain"}


@dataclass(frozen=True)
class StaticFile:
    """A file for the browser."""

    data: bytes
    type: str


@cache
def static_files() -> Mapping[str, StaticFile]:
    """Every file below static/, by its name in an address. No other file is served."""
    root = HERE / "static"
    files = (path for path in sorted(root.rglob("*")) if path.is_file() and path.suffix in TYPES)
    return {path.relative_to(root).as_posix(): StaticFile(path.read_bytes(), TYPES[path.suffix]) for path in files}


@cache
def _templates() -> Environment:
    """Templates escape all values; a misspelled name in a template raises an error."""
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        micros=micros,
        seconds=seconds,
        stamp=stamp,
        number=number,
        bytes=size,
        duration=duration,
        cell=cell,
        strip=strip,
        table=table_label,
    )
    return made


def page(template: str, **values: Any) -> str:
    return _templates().get_template(template).render(**values)


def micros(at: int | None, zoned: bool = True) -> str:
    """Microseconds since 1970, as text."""
    text = iso(at, zoned)
    return "-" if text is None else _short(text)


def seconds(at: float | None, zoned: bool = True) -> str:
    """Seconds since 1970, as text."""
    return "-" if at is None else micros(round(at * 1_000_000), zoned)


def stamp(at: datetime | str | None) -> str:
    """A time of Airflow's or the ledger's, as text."""
    if at is None:
        return "-"
    return _short(at if isinstance(at, str) else at.astimezone(UTC).isoformat())


def _short(text: str) -> str:
    """Cut a time to seconds. Other text stays unchanged."""
    return TIME.sub(lambda at: f"{at[1]} {at[2]}{'Z' if at[3] else ''}", text)


def number(value: float | None) -> str:
    """A number with thin spaces between thousands."""
    if value is None:
        return "-"
    return f"{value:,}".replace(",", "\u202f") if isinstance(value, int) else f"{value:.2f}"


def cell(value: Any) -> str:
    """A value of a row, cut if it is long."""
    text = "-" if value is None else str(value)
    return text if len(text) <= 200 else f"{text[:199]}…"
