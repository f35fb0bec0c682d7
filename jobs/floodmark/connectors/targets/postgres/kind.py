"""The PostgreSQL kind of sink: a target."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from floodmark.connectors.targets.postgres.options import WrittenPostgres
from floodmark.core.rules.kinds import SinkCan, SinkKind
from floodmark.errors import Refused

if TYPE_CHECKING:
    from pathlib import Path

    from floodmark.connectors.ports.target import ScratchPlaces, Target
    from floodmark.connectors.relay.outbox import OutboxSink
    from floodmark.core.rules.model import Sink


def _open(sink: Sink, outbox: Path | None) -> OutboxSink:
    from floodmark.connectors.relay.outbox import OutboxSink

    return OutboxSink(sink, outbox)


@contextmanager
def _needing_psycopg(sink: Sink) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as fault:
        raise Refused(
            f"sink {sink.label}: expected the package psycopg, found none: pip install 'FLOODMARK.whl[postgres]'"
        ) from fault


def _target(sink: Sink, outbox: Path | None) -> Target:
    with _needing_psycopg(sink):
        from floodmark.connectors.targets.postgres.target import PostgresTarget
    return PostgresTarget(str(sink.address), WrittenPostgres.model_validate(sink.options))


def _scratch(sink: Sink, _: Path, mark: str) -> ScratchPlaces:
    with _needing_psycopg(sink):
        from floodmark.connectors.targets.postgres.scratch import ScratchSchema
    return ScratchSchema(str(sink.address), WrittenPostgres.model_validate(sink.options), mark)


SINK = SinkKind(
    written=WrittenPostgres,
    summary="a table of PostgreSQL, by the name of a connection",
    can=SinkCan(qos=2, merges=True, replaces=True, compares=True, target=True),
    address=WrittenPostgres.address,
    open=_open,
    target=_target,
    scratch=_scratch,
)
