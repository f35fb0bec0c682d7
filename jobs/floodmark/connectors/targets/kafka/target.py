"""Kafka as a target: records and position are in one transaction.

The position is a record of the compacted topic `floodmark.positions`, by the name of the target's topic. All relays to
one topic have one transactional id, so a relay that starts to write ends all others for good, and then checks that the
position is still the one that it has read.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from floodmark.connectors.ports.connections import connection
from floodmark.connectors.ports.target import Layout, Operation, Target
from floodmark.connectors.sources.kafka.brokers import Brokers, brokers
from floodmark.connectors.sources.kafka.settings import client_settings
from floodmark.connectors.sources.python.rows import table_of
from floodmark.connectors.targets.kafka.forms import FORMS
from floodmark.connectors.targets.kafka.messages import Record, records_of
from floodmark.connectors.targets.kafka.producing import OPEN, Transactions
from floodmark.connectors.targets.kafka.reading import Blocked, CommittedReader
from floodmark.core.relay.positions import MARKERS, Position
from floodmark.core.text.tablenames import about_sink
from floodmark.errors import Fenced, InputFault, LedgerBroken, NotOwned, NotThereYet, Refused, RunFailed, WrongColumn

if TYPE_CHECKING:
    from floodmark.connectors.targets.kafka.options import WrittenTopic

PARTITIONS = 16  # of the topic of positions: an open transaction of one target holds few others up
PROOF = ".floodmark_prove_"  # in the name of a topic that a copy of a rule ships to
_SOON, _LONG = 2.0, OPEN + 30.0  # seconds to wait for the end of an open transaction
_ROWS = 10_000  # of a batch that is read back


def positions_of(topic: str) -> tuple[str, int]:
    """The topic with the position of a target's topic, and how many partitions it has.

    Copies of a proof stop in the middle of their transactions. So each has a topic of its own, and holds nobody up.
    """
    return (f"{topic}.positions", 1) if PROOF in topic else (MARKERS, PARTITIONS)


class KafkaTarget(Target):
    """One topic. `options`: its name, and that of the connection."""

    def __init__(self, address: str, options: WrittenTopic):
        self.address, self._topic, self._name = address, options.topic, options.connection
        self._marks, self._parts = positions_of(options.topic)
        self._key, self._form = tuple(options.key or ()), FORMS[options.format]
        self._transactions: Transactions | None = None
        self._markers: CommittedReader | None = None
        self._known: Position | None = None

    @cached_property
    def _settings(self) -> dict[str, Any]:
        return dict(client_settings(connection(self._name)))

    @property
    def _brokers(self) -> Brokers:
        return brokers(self._name, self._settings)

    # --- The position

    @property
    def _place(self) -> int:
        """The partition with this target's positions."""
        return zlib.crc32(self._topic.encode()) % self._parts

    def position(self) -> Position | None:
        return self._position(self._wait)

    def _position(self, unblock: Callable[[], object]) -> Position | None:
        """`unblock`: called if an open transaction is in the way."""
        if self._markers is None and not self._open_markers():
            return None
        try:
            self._read(_SOON)
        except Blocked:
            unblock()
            self._read_late()
        except NotThereYet:  # the topic of positions was there before
            return None
        return self._known

    def _open_markers(self) -> bool:
        """Whether there is a topic of positions."""
        found = self._partitions(self._marks)
        if found is None:
            return False
        if len(found) != self._parts:
            problem = f"expected {self._parts} partitions of the topic {self._marks}, found {len(found)}: make it anew"
            raise Refused(about_sink(self.address, f"{problem}, or restore it"))
        self._markers = CommittedReader(self._settings, self._brokers, self._marks, [self._place])
        return True

    def _read(self, patience: float) -> None:
        assert self._markers is not None
        for message in self._markers.to_end(patience):
            if message.key() == self._topic.encode():
                self._known = self._parsed(message.value())

    def _parsed(self, value: bytes | None) -> Position | None:
        try:
            return None if value is None else Position.parse(value.decode())
        except ValueError as fault:
            raise LedgerBroken(
                about_sink(self.address, f"its position in {self._marks} cannot be read: {fault}")
            ) from None

    def _read_late(self) -> None:
        try:
            self._read(_LONG)
        except Blocked:
            problem = (
                f"a transaction of another target is open in {self._marks} for long: end its relay, then ship again"
            )
            raise RunFailed(about_sink(self.address, problem)) from None

    def _wait(self) -> None:
        """For the broker, which ends each transaction after a while."""

    def end_others(self) -> None:
        """End other relays of this target for good, and take their open transaction back."""
        self._fence()

    def _fence(self) -> Transactions:
        """The only producer: others are ended."""
        if self._transactions is None:
            largest = self._brokers.largest(self._topic)
            name = f"floodmark.{self._topic}"
            self._transactions = Transactions(self.address, self._settings, name, largest)
        return self._transactions

    # --- Claiming

    def claim(self, owner: str, layout: Layout) -> Position:
        self._check_columns(layout)
        return self._position(self._fence) or self._take(owner)

    def _take(self, owner: str) -> Position:
        ends = self._partitions(self._topic)
        if ends and any(one.first < one.next for one in ends.values()):
            raise NotOwned(
                about_sink(
                    self.address,
                    f"it has records, and the topic {self._marks} has no position of a rule: expected a topic without "
                    f"records, or one that this rule has written. If somebody deleted {self._marks}, restore it, else "
                    "name another topic",
                )
            )
        if ends is None:
            self._brokers.make(self._topic)
        if self._partitions(self._marks) is None:
            self._brokers.make(self._marks, self._parts, {"cleanup.policy": "compact"})
        transactions, found = self._fence(), self._position(self._wait)
        if found is None:
            found = Position(owner)
            transactions.send(self._topic, (), self._marker(found))
            transactions.commit()
        return found

    def _marker(self, position: Position) -> tuple[str, int, str, str]:
        return self._marks, self._place, self._topic, position.text()

    def _partitions(self, topic: str) -> Any:
        """First and next record of each partition; None if there is no such topic."""
        try:
            return self._brokers.topics([topic], None).topics[topic].partitions
        except NotThereYet:
            return None

    def _check_columns(self, layout: Layout) -> None:
        try:
            self._form.check(layout.columns)
        except ValueError as fault:
            raise WrongColumn(about_sink(self.address, f"{fault}: write another type in the SQL")) from None
        names = [column.name for column in layout.columns]
        for name in (name for name in self._key if name not in names):
            problem = f"expected columns of the results in its key, found {name}: write one of {', '.join(names)}"
            raise WrongColumn(about_sink(self.address, problem))

    # --- Applying

    def apply(
        self,
        operations: Sequence[Operation],
        layout: Layout,
        since: Position,
        upto: Position,
        sent: Callable[[], None],
    ) -> None:
        self._check_topic()
        transactions = self._fence()
        self._check(since)
        records = chain.from_iterable(self._records(one, layout) for one in operations)
        try:
            transactions.send(self._topic, records, None if upto == since else self._marker(upto))
            sent()
            transactions.commit()
        except BaseException:
            self._transactions = None
            raise

    def refused(
        self, fault: InputFault, operations: Sequence[Operation], layout: Layout, since: Position
    ) -> list[dict[int, str]]:
        """The broker tells by size alone. Each record that may be too large is tried, in a transaction without end."""
        return [self._too_large(self._records(one, layout)) for one in operations]

    def _records(self, one: Operation, layout: Layout) -> Iterator[Record]:
        return records_of(one, layout, layout.key or self._key, self._form) if one.count else iter(())

    def _too_large(self, records: Iterator[Record]) -> dict[int, str]:
        largest, found = self._brokers.largest(self._topic), dict[int, str]()
        for place, one in enumerate(records):
            if one.size > largest:
                try:
                    self._fence().rehearse(self._topic, one)
                except InputFault as fault:
                    found[place] = str(fault)
                finally:
                    self._transactions = None
        return found

    def _check(self, since: Position) -> None:
        found = self._position(self._wait)
        if found is None:
            problem = f"expected its position ({since.words}) in {self._marks}, found none: somebody removed it"
            raise Refused(about_sink(self.address, problem))
        if found != since:
            problem = f"expected its position at {since.words}, found {found.words}: another relay has moved it"
            raise Fenced(about_sink(self.address, problem))

    def _check_topic(self) -> None:
        if self._partitions(self._topic) is None:
            problem = "expected the topic, found none: somebody removed it. Restore it"
            raise Refused(about_sink(self.address, problem))

    # --- Reading back

    def read_back(self, layout: Layout) -> Iterator[pa.RecordBatch]:
        """With a key, the newest row of each that no tombstone has taken away."""
        ends = self._partitions(self._topic)
        if ends is None:
            return
        reader = CommittedReader(self._settings, self._brokers, self._topic, list(ends))
        try:
            rows = self._rows(reader, layout)
            while part := [row for row, _ in zip(rows, range(_ROWS), strict=False)]:
                yield from table_of(layout.columns, [part]).to_batches()
        finally:
            reader.close()

    def _rows(self, reader: CommittedReader, layout: Layout) -> Iterator[dict[str, Any]]:
        messages = reader.to_end(_LONG)
        if layout.key:
            newest = {message.key(): message for message in messages}
            messages = (message for message in newest.values() if message.value() is not None)
        form, columns = self._form, layout.columns
        return (form.row_in(message.value(), dict(message.headers() or ()), columns) for message in messages)

    def close(self) -> None:
        if self._markers is not None:
            self._markers.close()
        self._transactions = self._markers = None
