"""What a target has, for the auditor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from floodmark.connectors.relay.relaying import layout_of, target_of
from floodmark.core.rules.model import Sink

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from floodmark.ledger.home import Home


@dataclass(frozen=True)
class HeldBy:
    """Of one target. `position`: by the names of its fields; None: it has none."""

    sink: Sink
    folder: Path
    position: Mapping[str, Any] | None

    def rows(self) -> Iterator[pa.RecordBatch]:
        """All rows, with the outbox's columns."""
        with closing(target_of(self.sink, self.folder)) as target:
            yield from target.read_back(layout_of(self.sink, self.folder))

    def damage(self) -> Iterator[str]:
        """What others did to it, if it can tell without its rows."""
        with closing(target_of(self.sink, self.folder)) as target:
            yield from target.damage()

    def expired(self) -> int:
        """How many rows, at most, it has dropped by itself because they are old."""
        with closing(target_of(self.sink, self.folder)) as target:
            return target.expired(layout_of(self.sink, self.folder))


def held_by(home: Home, said: Mapping[str, Any]) -> HeldBy:
    """Of the sink that a rule's text describes. Raises what the target raises."""
    sink = Sink.model_validate(said)
    folder = cast("Path", home.outbox(sink))
    with closing(target_of(sink, folder)) as target:
        position = target.position()
    return HeldBy(sink, folder, None if position is None else position.facts())
