"""The kind of source that an author's class is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from floodmark.connectors.sources.python.options import WrittenPython, code_of
from floodmark.core.rules.kinds import CODE, SourceCan, SourceKind
from floodmark.core.text.ddl import columns_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from floodmark.connectors.ports.source import Source
    from floodmark.core.rules.model import Stream
    from floodmark.core.text.ddl import Column


def _open(name: str, stream: Stream, keep: Path | None) -> Source:
    from floodmark.connectors.sources.python.source import PythonSource

    return PythonSource(name, stream)


def _address(said: Any) -> str:
    return f"python://{WrittenPython.model_validate(said).named}"


def _columns(options: Mapping[str, Any]) -> tuple[Column, ...]:
    said = WrittenPython.model_validate({key: one for key, one in options.items() if key != CODE})
    return columns_of(said.declared)


SOURCE = SourceKind(
    written=WrittenPython,
    summary="a class of one's own, in the rules folder or on the Python path",
    can=SourceCan(rereads=True, starts=frozenset({"earliest", "latest"}), limits=frozenset({"max_rows"})),
    address=_address,
    open=_open,
    code=code_of,
    columns=_columns,
)
