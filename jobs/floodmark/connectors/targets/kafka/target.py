"""Kafka as a target: records and position are in one transaction.

The position is a record of the compacted topic `floodmark.positions` (`markers.py`). All relays to one topic have one
transactional id, so a relay that starts to write ends all others for good, and then checks that the position is still
the one that it has read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from floodmark.connectors.ports.target import Layout, Operation, Target
from floodmark.connectors.sources.kafka.offsets import Topic
from floodmark.connectors.targets.kafka.forms import FORMS
from floodmark.connectors.targets.kafka.leaving import keys_held
from floodmark.connectors.targets.kafka.markers import LONG, Cluster, Mark, Markers, difference, id_of
from floodmark.connectors.targets.kafka.messages import Record, is_of, records_of, row_in, tombstones_of
from floodmark.connectors.targets.kafka.producing import Transactions
from floodmark.connectors.targets.kafka.reading import Blocked, CommittedReader
from floodmark.connectors.targets.values.rowbatches import batches_of
from floodmark.core.relay.positions import Position
from floodmark.core.text.tablenames import about_sink
from floodmark.errors import Fenced, HistoryGone, InputFault, NotOwned, Refused, RunFailed, WrongColumn

if TYPE_CHECKING:
    from floodmark.connectors.targets.kafka.options import WrittenTopic

_WAYS = (
    "If you have restored it with its records, or want a new one to get all that the outbox still has, say "
    "`floodmark relay RULE --target NAME --resend`. Else restore it, or name another topic and start over with "
    "`floodmark reset`"
)


class KafkaTarget(Target):
    """One topic. `options`: its name, and that of the connection."""

    def __init__(self, address: str, options: WrittenTopic):
        self.address, self._topic = address, options.topic
        self._key, self._form = tuple(options.key or ()), FORMS[options.format]
        self._cluster = Cluster(options.connection)
        self._markers = Markers(address, self._cluster, self._topic)
        self._transactions: Transactions | None = None
        self._accepts = False
        self._void: Mark | None = None  # of a topic that is gone: the new one has nothing of it

    # --- The position

    def position(self) -> Position | None:
        mark = self._markers.newest(self._wait)
        if mark is None:
            return None
        self._check_topic(mark.topic, self._cluster.topic(self._topic))
        return mark.position

    def _check_topic(self, noted: str | None, found: Topic | None) -> Topic:
        """Raises HistoryGone if it is not the topic that got there."""
        problem = difference(noted, found)
        if found is None or problem:
            raise HistoryGone(about_sink(self.address, f"{problem}. {_WAYS}"))
        return found

    def _wait(self) -> None:
        """For the broker, which ends each transaction after a while."""

    def end_others(self) -> None:
        """End other relays of this target for good, and take their open transaction back."""
        self._fence()

    def _fence(self) -> Transactions:
        """The only producer: others are ended."""
        if self._transactions is None:
            brokers, settings = self._cluster.brokers, self._cluster.settings
            largest, longest = brokers.largest(self._topic), brokers.longest()
            self._transactions = Transactions(self.address, settings, f"floodmark.{self._topic}", largest, longest)
        return self._transactions

    # --- Claiming

    def accept(self) -> None:
        self._accepts = True

    def claim(self, owner: str, layout: Layout) -> Position:
        self._check_columns(layout)
        found = self._cluster.topic(self._topic)
        mark = self._markers.newest(self._wait if found is None else self._fence)
        if mark is None:
            return self._take(owner, found)
        if mark.position.ledger != owner:
            return mark.position
        if self._accepts and difference(mark.topic, found) is not None:
            return self._accepted(mark, found)
        topic = self._check_topic(mark.topic, found)
        if mark.topic is None and id_of(topic) is not None:  # its relay was of a version that did not note it
            self._note(mark, topic)
        return mark.position

    def _take(self, owner: str, found: Topic | None) -> Position:
        if found and any(one.first < one.next for one in found.partitions.values()):
            place = self._markers.place
            raise NotOwned(
                about_sink(
                    self.address,
                    f"it has records, and the topic {place} has no position of a rule: expected a topic without "
                    f"records, or one that this rule has written. If somebody deleted {place}, restore it, else "
                    "name another topic",
                )
            )
        topic = found or self._made()
        self._markers.make()
        return self._note(None, topic, Position(owner))

    def _made(self) -> Topic:
        self._cluster.brokers.make(self._topic)
        return self._there()

    def _accepted(self, mark: Mark, found: Topic | None) -> Position:
        """Of another topic than the one that was at `mark`: with records of the rule, it is as of then; without, it has
        nothing."""
        topic = found or self._made()
        if self._has_records(topic, mark.position.ledger):
            return self._note(mark, topic)
        self._void = mark
        return Position(mark.position.ledger)

    def _has_records(self, topic: Topic, ledger: str) -> bool:
        """Those of a transaction that was taken back have offsets, too, and do not count; nor do other writers'."""
        self._fence()
        reader = self._reader(topic)
        try:
            return any(is_of(ledger, message) for message in reader.to_end(LONG))
        finally:
            reader.close()

    def _reader(self, topic: Topic) -> CommittedReader:
        cluster = self._cluster
        return CommittedReader(cluster.settings, cluster.brokers, self._topic, list(topic.partitions))

    def _note(self, mark: Mark | None, topic: Topic, first: Position | None = None) -> Position:
        """Note which topic is at the position. first: of a topic without one, unless another relay was faster."""
        transactions, found = self._fence(), self._markers.newest(self._wait)
        if found is not None and first is not None:
            return found.position
        position = first or (found and found.position)
        if found != mark or position is None:
            raise Fenced(about_sink(self.address, "another relay has moved its position"))
        transactions.send(self._topic, (), self._markers.record(Mark(position, id_of(topic))))
        transactions.commit()
        return position

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
        topic = self._there()
        transactions = self._fence()
        self._check(since, topic)
        moved = None if upto == since else self._markers.record(Mark(upto, id_of(topic)))
        if self._void is not None and moved is None:
            self._begin_anew(topic, since)
        records = chain.from_iterable(self._records(one, layout) for one in operations)
        if operations and operations[0].takes_away:
            first, *others = operations
            held = self._held(first, layout, topic)
            after = chain.from_iterable(self._records(one, layout) for one in others)
            records = chain(self._replacing(first, layout, held), after)
        try:
            transactions.send(self._topic, records, moved)
            sent()
            transactions.commit()
        except BaseException:
            self._transactions = None
            raise

    def _begin_anew(self, topic: Topic, since: Position) -> None:
        """Note that the topic has nothing yet, before rows come without a position: else they would seem to be all."""
        transactions = self._fence()
        transactions.send(self._topic, (), self._markers.record(Mark(since, id_of(topic))))
        transactions.commit()
        self._void = None

    def _held(self, one: Operation, layout: Layout, topic: Topic) -> dict[bytes, None]:
        """The keys of the rows that leave before the operation's rows come."""
        assert layout.key, "rows leave a topic by their key"
        reader = self._reader(topic)
        try:
            return keys_held(reader.to_end(LONG), None if one.empties else one.replaces)
        except Blocked:
            problem = "a transaction of another program is open in the topic for long: end it, then ship again"
            raise RunFailed(about_sink(self.address, problem)) from None
        finally:
            reader.close()

    def _replacing(self, one: Operation, layout: Layout, held: dict[bytes, None]) -> Iterator[Record]:
        """The records of its rows; then a tombstone for each key of `held` that has none of them."""
        for record in self._records(one, layout):
            held.pop(record.key or b"", None)
            yield record
        yield from tombstones_of(one, layout, held, self._form)

    def refused(
        self, fault: InputFault, operations: Sequence[Operation], layout: Layout, since: Position
    ) -> list[dict[int, str]]:
        """The broker tells by size alone. Each record that may be too large is tried, in a transaction without end."""
        return [self._too_large(self._records(one, layout)) for one in operations]

    def _records(self, one: Operation, layout: Layout) -> Iterator[Record]:
        return records_of(one, layout, layout.key or self._key, self._form) if one.count else iter(())

    def _too_large(self, records: Iterator[Record]) -> dict[int, str]:
        largest, found = self._cluster.brokers.largest(self._topic), dict[int, str]()
        for place, one in enumerate(records):
            if one.size > largest:
                try:
                    self._fence().rehearse(self._topic, one)
                except InputFault as fault:
                    found[place] = str(fault)
                finally:
                    self._transactions = None
        return found

    def _check(self, since: Position, topic: Topic) -> None:
        found, place = self._markers.newest(self._wait), self._markers.place
        if found is None:
            problem = f"expected its position ({since.words}) in {place}, found none: somebody removed it"
            raise Refused(about_sink(self.address, problem))
        if found == self._void:
            return
        self._check_topic(found.topic, topic)
        if found.position != since:
            problem = (
                f"expected its position at {since.words}, found {found.position.words}: another relay has moved it"
            )
            raise Fenced(about_sink(self.address, problem))

    def _there(self) -> Topic:
        return self._check_topic(None, self._cluster.topic(self._topic))

    # --- Reading back

    def read_back(self, layout: Layout) -> Iterator[pa.RecordBatch]:
        """With a key, the newest row of each that no tombstone has taken away."""
        found = self._cluster.topic(self._topic)
        if found is None:
            return
        reader = self._reader(found)
        try:
            yield from batches_of(self._rows(reader, layout), layout.columns)
        finally:
            reader.close()

    def _rows(self, reader: CommittedReader, layout: Layout) -> Iterator[dict[str, Any]]:
        messages = reader.to_end(LONG)
        if layout.key:
            newest = {message.key(): message for message in messages}
            messages = (message for message in newest.values() if message.value() is not None)
        return (row_in(message, self._form, layout.columns) for message in messages)

    def expired(self, layout: Layout) -> int:
        """With a key, the newest record of each has to be there. The numbers that are gone are not all of records."""
        found = None if layout.key else self._cluster.topic(self._topic)
        return 0 if found is None else sum(one.first for one in found.partitions.values())

    def close(self) -> None:
        self._markers.close()
        self._transactions = None
