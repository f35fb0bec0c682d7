"""Offsets in Kafka's topics, and where epochs end. Pure.

A partition's entry is (first, next): the first record that there was when the stream met the partition, and the next
one to read. A stream starts at `first` in a topic that it meets, so that a retry and a backfill start there, too. In a
partition that was added to a topic that it knows, it starts at 0: all records there are younger than what was read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

NO_ID = "A" * 22  # of each topic of a broker before Kafka 2.8, and of some compatible services
Partition: TypeAlias = tuple[str, int]


class Ends(NamedTuple):
    first: int
    next: int


class Range(NamedTuple):
    low: int
    high: int


@dataclass(frozen=True)
class Topic:
    """`id`: another one after the topic was deleted and made anew."""

    id: str
    partitions: Mapping[int, Ends]

    def facts(self) -> dict[str, Any]:
        return {"id": self.id, "partitions": {str(number): [*ends] for number, ends in sorted(self.partitions.items())}}

    def moved(self, nexts: Mapping[int, int]) -> Topic:
        """The same, with some partitions read up to another place."""
        ends = {number: Ends(one.first, nexts.get(number, one.next)) for number, one in self.partitions.items()}
        return Topic(self.id, ends)

    def met_as(self, known: Topic) -> Topic:
        """The same, with the first records that there were when its partitions were met, and no end before what was
        read. A partition that cannot be seen stays where it was read, and a topic keeps the id that it is known by."""
        ends = {**known.partitions}
        for number, one in self.partitions.items():
            met = known.partitions.get(number, one)
            ends[number] = Ends(met.first, max(met.next, one.next))
        return Topic(known.id if self.id == NO_ID else self.id, ends)


@dataclass(frozen=True)
class KafkaOffset:
    """`cluster`: Kafka's id of it."""

    cluster: str
    topics: Mapping[str, Topic] = field(default_factory=dict)

    @classmethod
    def parse(cls, line: str) -> KafkaOffset:
        said = json.loads(line)
        topics = {
            name: Topic(one["id"], {int(number): Ends(*ends) for number, ends in one["partitions"].items()})
            for name, one in said["topics"].items()
        }
        return cls(said["cluster"], topics)

    def line(self) -> str:
        topics = {name: one.facts() for name, one in sorted(self.topics.items())}
        return json.dumps({"cluster": self.cluster, "topics": topics})

    def ends(self) -> dict[Partition, Ends]:
        return {(name, number): ends for name, one in self.topics.items() for number, ends in one.partitions.items()}

    def moved(self, nexts: Mapping[Partition, int]) -> KafkaOffset:
        """The same topics, with some partitions read up to another place."""
        topics = {
            name: one.moved({number: upto for (topic, number), upto in nexts.items() if topic == name})
            for name, one in self.topics.items()
        }
        return KafkaOffset(self.cluster, topics)


def continued(since: KafkaOffset, now: KafkaOffset) -> KafkaOffset:
    """Where the topics end now. One that cannot be seen stays where it was read: it may only be hidden for a while.

    So does a partition whose broker answers an older end: a broker may do so for a while after it became the leader.
    """
    met = {name: one.met_as(since.topics[name]) for name, one in now.topics.items() if name in since.topics}
    return KafkaOffset(now.cluster, {**since.topics, **now.topics, **met})


def begins(since: KafkaOffset, upto: KafkaOffset) -> dict[Partition, int]:
    """From where each partition of `upto` is read on."""
    read = {place: one.next for place, one in since.ends().items()}
    known = since.topics.keys() - recreated(since, upto)
    return {place: read.get(place, 0 if place[0] in known else one.first) for place, one in upto.ends().items()}


def ranges(begin: KafkaOffset, end: KafkaOffset) -> dict[Partition, Range]:
    """What lies between two offsets, without partitions of which nothing does."""
    lows = begins(begin, end)
    found = {place: Range(lows[place], ends.next) for place, ends in end.ends().items()}
    return {place: one for place, one in found.items() if one.low < one.high}


def after(since: KafkaOffset, upto: KafkaOffset, most: int | None) -> KafkaOffset:
    """The offset at most `most` places beyond `since`: from each partition its share of what waits there."""
    waiting = ranges(since, upto)
    total = sum(one.high - one.low for one in waiting.values())
    if most is None or total <= most:
        return upto
    whole = {place: divmod((one.high - one.low) * most, total) for place, one in waiting.items()}
    shares = {place: share for place, (share, _) in whole.items()}
    for place in sorted(whole, key=lambda one: -whole[one][1])[: most - sum(shares.values())]:
        shares[place] += 1
    return upto.moved({place: low + shares.get(place, 0) for place, low in begins(since, upto).items()})


def recreated(read: KafkaOffset, now: KafkaOffset) -> list[str]:
    """The topics that are others now than those that were read. An upgrade of the brokers gives topics their ids."""
    ids = {name: {one.id, now.topics[name].id} - {NO_ID} for name, one in read.topics.items() if name in now.topics}
    return [name for name, known in ids.items() if len(known) > 1]


def hidden(read: KafkaOffset, now: KafkaOffset) -> list[str]:
    """The topics that were read and cannot be seen now: they were deleted, or may not be seen for a while."""
    return sorted(read.topics.keys() - now.topics.keys())


def without_ids(at: KafkaOffset) -> list[str]:
    """The topics that `recreated` cannot tell from others of their name."""
    return sorted(name for name, one in at.topics.items() if one.id == NO_ID)


def shortened(read: KafkaOffset, now: KafkaOffset) -> dict[Partition, int]:
    """Partitions that end before what was read of them, or are gone, and where they end (0: gone)."""
    ends = now.ends()
    known = ((place, one.next) for place, one in read.ends().items() if place[0] in now.topics)
    found = {place: (ends[place].next if place in ends else 0, upto) for place, upto in known}
    return {place: end for place, (end, upto) in found.items() if end < upto}


def lost(since: KafkaOffset, now: KafkaOffset) -> dict[Partition, Range]:
    """The records beyond `since` that were removed before they were read."""
    lows = begins(since, now)
    found = {place: Range(lows[place], ends.first) for place, ends in now.ends().items()}
    return {place: one for place, one in found.items() if one.low < one.high}


def gaps(wanted: Mapping[Partition, Range], now: KafkaOffset) -> dict[Partition, Range]:
    """The part of some ranges whose records were removed since."""
    firsts = {place: ends.first for place, ends in now.ends().items()}
    found = {place: Range(one.low, min(one.high, firsts.get(place, one.high))) for place, one in wanted.items()}
    return {place: one for place, one in found.items() if one.low < one.high}
