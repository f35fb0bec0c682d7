"""Topics of Kafka as a source. Only the methods that take a session need a JVM."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from floodmark.connectors.ports.connections import connection
from floodmark.connectors.ports.source import Backlog, Stepped, check_passed
from floodmark.connectors.sources.kafka.brokers import Brokers, brokers
from floodmark.connectors.sources.kafka.offsets import (
    KafkaOffset,
    Partition,
    Range,
    after,
    continued,
    gaps,
    hidden,
    lost,
    ranges,
    recreated,
    shortened,
    without_ids,
)
from floodmark.connectors.sources.kafka.options import Kafka, texts_of
from floodmark.connectors.sources.kafka.settings import client_settings, spark_settings
from floodmark.core.application.sparkconf import AVRO_JARS, KAFKA_JARS, check_jars
from floodmark.core.lifecycle.retention import RECORDS, Limit
from floodmark.core.rules.kinds import CODE
from floodmark.core.text.ddl import delta_name
from floodmark.errors import HistoryGone, NotThereYet

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from floodmark.core.rules.model import StartAt, Stream
    from floodmark.core.rules.rule import EpochLimits

BYTES = 100  # of a record, as a guess: it decides only how a small run starts
SETTLES = 5.0  # seconds for which a broker may answer older ends, after it became the leader of a partition
RESET = "start over with `floodmark reset`"


class KafkaSource(Stepped):
    """Topics that a rule reads, up to the last record of a committed transaction."""

    def __init__(self, name: str, stream: Stream):
        self.name, self.address = name, stream.address
        options = dict(stream.options)
        self._texts = texts_of(options.pop(CODE, None))
        self._said, self._starts_at = Kafka.model_validate(options), stream.start

    @property
    def _settings(self) -> dict[str, str]:
        return client_settings(connection(self._said.connection))

    @property
    def _brokers(self) -> Brokers:
        return brokers(self._said.connection, self._settings)

    @property
    def _named(self) -> list[str]:
        return [self._said.topic] if self._said.topic else self._said.topics or []

    def _now(self, committed: bool = True) -> KafkaOffset:
        return self._brokers.topics(self._named, self._said.pattern, committed)

    def columns(self) -> dict[str, str]:
        return {column.name: delta_name(column.type) for column in self._said.columns(self._texts)}

    def start(self) -> str:
        clock, now, start = datetime.now(UTC), self._now(), self._starts_at
        if start == "latest":
            return now.line()
        if start == "earliest":
            return now.moved({place: ends.first for place, ends in now.ends().items()}).line()
        return now.moved(self._at(now, start, clock)).line()

    def _at(self, now: KafkaOffset, start: StartAt, clock: datetime) -> Mapping[Partition, int]:
        """The first records that are not before an instant; where there is none, the end. Raises NotThereYet.

        `clock`: before the ends were asked for.
        """
        moment = datetime.fromisoformat(str(start.timestamp))
        found = self._brokers.offsets_at(now.ends(), int(moment.timestamp() * 1000))
        if any(offset < 0 for offset in found.values()):
            check_passed(self.name, moment, clock)
        return {place: ends.next if found[place] < 0 else found[place] for place, ends in now.ends().items()}

    def end(self) -> str:
        return self._now().line()

    def take_end(self, since: str) -> str:
        read, now = KafkaOffset.parse(since), self._now()
        self._refuse_others(now, read)
        return continued(read, now).line()

    def after(self, since: str, upto: str, limits: EpochLimits) -> str:
        return after(KafkaOffset.parse(since), KafkaOffset.parse(upto), limits.max_rows).line()

    def identity(self, offset: str) -> str:
        return KafkaOffset.parse(offset).cluster

    def news(self, since: str, upto: str | None = None) -> bool:
        return bool(ranges(KafkaOffset.parse(since), self._now() if upto is None else KafkaOffset.parse(upto)))

    def backlog(self, since: str, rebuilt: bool = False) -> Backlog:
        read, now = KafkaOffset.parse(since), self._now()
        if not rebuilt:
            self._refuse_lost(read, now)
        count = _size(ranges(read, now))
        held = _size(ranges(now, self._now(committed=False)))
        text = f"{count} records" if count else "nothing new"
        text += f"; {held} more wait for an open transaction" if held else ""
        gone = hidden(read, now)
        text += f"; {_not_there(gone)}" if gone else ""
        facts = {"records": count, "in_open_transactions": held, "topics_not_there": gone}
        return Backlog(count, "records", text, facts)

    def notices(self, since: str) -> tuple[str, ...]:
        read = KafkaOffset.parse(since)
        gone = hidden(read, self._now()) if self._said.pattern else []
        return (*([f"stream {self.name}: {_not_there(gone)}"] if gone else []), *self._without_ids(read))

    def cautions(self) -> tuple[str, ...]:
        return self._without_ids(self._now())

    def _without_ids(self, at: KafkaOffset) -> tuple[str, ...]:
        found = without_ids(at)
        return (f"stream {self.name}: {_no_ids(found)}",) if found else ()

    def waiting(self, since: str | None, enough: int | None = None) -> int:
        now = self._now()
        read = KafkaOffset(now.cluster) if since is None else KafkaOffset.parse(since)
        return BYTES * _size(ranges(read, now))

    def check_appended(self, since: str) -> None:
        self._refuse_lost(KafkaOffset.parse(since), self._now())

    def check_kept(self, begin: str, end: str) -> None:
        """Compaction leaves holes like those of a transaction's markers, so nobody can count what it removed."""
        read = ranges(KafkaOffset.parse(begin), KafkaOffset.parse(end))
        for topic in sorted({topic for topic, _ in read}):
            if self._brokers.compacts(topic):
                raise HistoryGone(
                    f"stream {self.name}: expected a topic that still has every record that epochs have read, found "
                    f"{topic} with `cleanup.policy: compact`: Kafka removes a record once its key has come again. Set "
                    f"`landing: true` at the stream, which keeps a copy, and start over with `floodmark reset`"
                )

    def _refuse_lost(self, read: KafkaOffset, now: KafkaOffset) -> None:
        self._refuse_gaps(lost(read, now), "before they were read")

    def _refuse_gaps(self, found: Mapping[Partition, Range], when: str) -> None:
        if found:
            (topic, number), one = min(found.items())
            more = f" (and records of {len(found) - 1} more partitions)" if len(found) > 1 else ""
            raise HistoryGone(
                f"stream {self.name}: topic {topic}, partition {number}: expected the records from offset {one.low} "
                f"on, found none before {one.high}{more}: the topic's retention removed them {when}. Nothing more is "
                f"read, so that their loss is noticed: {RESET}, and give the topic a longer `retention.ms`"
            )

    def is_another(self, offset: str, log_sum: str | None = None) -> bool:
        return self._difference(KafkaOffset.parse(offset)) is not None

    def check_identity(self, offset: str, log_sum: str | None) -> None:
        self._refuse(self._difference(KafkaOffset.parse(offset)))

    def _refuse(self, problem: str | None) -> None:
        if problem is not None:
            raise HistoryGone(f"stream {self.name}: {problem}. Restore it, or {RESET}")

    def _refuse_others(self, now: KafkaOffset, *known: KafkaOffset) -> None:
        """A run compares its topics at its start, and one may be made anew while it runs."""
        for one in known:
            self._refuse(self._others(one, now))

    def _difference(self, read: KafkaOffset) -> str | None:
        """Why these are not the topics that were read."""
        try:
            now = self._now(committed=False)
        except NotThereYet:
            gone = sorted(set(self._named) & read.topics.keys() - set(self._brokers.beginning("")))
            if not gone:
                raise
            return f"{_not_there(gone)} (before a reset, make one of that name)"
        until = time.monotonic() + SETTLES
        while shortened(read, now) and self._others(read, now) is None and time.monotonic() < until:
            time.sleep(0.5)
            now = self._now(committed=False)
        others = self._others(read, now)
        if others is not None:
            return others
        for (topic, number), end in shortened(read, now).items():
            upto = read.topics[topic].partitions[number].next
            return f"topic {topic}, partition {number}: it was read up to offset {upto}, and now ends at {end}"
        return None

    def _others(self, read: KafkaOffset, now: KafkaOffset) -> str | None:
        """Which cluster or topic is another one now."""
        if now.cluster != read.cluster:
            return f"expected Kafka's cluster {read.cluster}, found {now.cluster} at connection {self._said.connection}"
        for topic in recreated(read, now):
            ids = f"expected the one with id {read.topics[topic].id}, found {now.topics[topic].id}"
            return f"topic {topic} was deleted and made anew: {ids}"
        return None

    def forgets(self, since: str, now_us: int) -> list[Limit]:
        read, now, found = KafkaOffset.parse(since), self._now(), []
        removed = lost(read, now)
        for (topic, number), one in ranges(read, now).items():
            kept = self._brokers.retention_ms(topic)
            if (topic, number) in removed:
                found.append(Limit(self.name, RECORDS, 0, 0, lost=True))
            elif kept is not None:
                written = self._brokers.written_ms((topic, number), one.low)
                waited = 0 if written is None else now_us - written * 1000
                found.append(Limit(self.name, RECORDS, waited, kept * 1000))
        return found

    def describe(self, offset: str) -> str:
        ends = KafkaOffset.parse(offset).ends()
        shown = [f"{topic}/{number}: {one.next}" for (topic, number), one in sorted(ends.items())]
        return ", ".join(shown[:8]) + (f" and {len(shown) - 8} more partitions" if len(shown) > 8 else "")

    def frame(self, spark: SparkSession, begin: str, end: str) -> DataFrame:
        low, high = KafkaOffset.parse(begin), KafkaOffset.parse(end)
        wanted = ranges(low, high)
        if wanted:
            now = self._now()
            self._refuse_others(now, low, high)
            self._refuse_gaps(gaps(wanted, now), "before they were read, or read again")
        return self._rows(spark, wanted)

    def typed(self, spark: SparkSession) -> DataFrame:
        return self._rows(spark, {})

    def whole(self, spark: SparkSession) -> DataFrame:
        now = self._now()
        return self._rows(spark, {place: Range(*ends) for place, ends in now.ends().items() if ends.first < ends.next})

    def _rows(self, spark: SparkSession, wanted: Mapping[Partition, Range]) -> DataFrame:
        from floodmark.connectors.sources.kafka.records import decoded, records

        check_jars((*KAFKA_JARS, *(AVRO_JARS if self._said.format == "avro" else ())))
        found = records(spark, wanted, spark_settings(self._settings), "headers" in self._said.metadata)
        return decoded(found, self._said, self._texts)


def _not_there(topics: list[str]) -> str:
    """Of topics that were read."""
    lost = "if it was deleted, records that were not read are lost"
    return f"topic {_few(topics)} was read, and is not there now: {lost}"


def _no_ids(topics: list[str]) -> str:
    return (
        f"the brokers give topic {_few(topics)} no id, so a topic that is deleted and made anew may not be noticed: "
        f"its first records would be lost. Use Kafka 2.8 or newer, or {RESET} after a topic was made anew"
    )


def _few(topics: list[str]) -> str:
    return ", ".join(topics[:3]) + (f" and {len(topics) - 3} more" if len(topics) > 3 else "")


def _size(found: Mapping[Partition, Range]) -> int:
    """Places in Kafka's log; those of transactions' own markers count, too."""
    return sum(one.high - one.low for one in found.values())
