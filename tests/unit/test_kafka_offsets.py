"""Offsets in Kafka's topics: ranges, shares of an epoch, and what is no longer there."""

from __future__ import annotations

import json
from random import Random

import pytest

from floodmark.connectors.sources.kafka.offsets import (
    NO_ID,
    Ends,
    KafkaOffset,
    Range,
    Topic,
    after,
    continued,
    gaps,
    lost,
    ranges,
    recreated,
    shortened,
)


def at(*parts: tuple[int, int], topic: str = "t", known: str = "1") -> KafkaOffset:
    return KafkaOffset("c", {topic: Topic(known, {number: Ends(*ends) for number, ends in enumerate(parts)})})


def test_a_line_is_read_as_it_was_written() -> None:
    offset = KafkaOffset("c", {"b": Topic("2", {10: Ends(0, 5), 9: Ends(1, 1)}), "a": Topic("1", {})})
    line = offset.line()
    assert KafkaOffset.parse(line) == offset and KafkaOffset.parse(line).line() == line
    assert json.dumps(json.loads(line)) == line and "\n" not in line
    assert list(json.loads(line)["topics"]) == ["a", "b"] and list(json.loads(line)["topics"]["b"]["partitions"]) == [
        "9",
        "10",
    ]


def test_a_topic_that_is_new_begins_with_its_first_record_at_that_time() -> None:
    new = KafkaOffset("c", {**at((2, 5)).topics, **at((7, 9), topic="u").topics})
    assert ranges(at((0, 3)), new) == {("t", 0): Range(3, 5), ("u", 0): Range(7, 9)} and lost(at((0, 3)), new) == {}
    assert ranges(at((0, 5)), at((4, 4), topic="u")) == {}


def test_a_partition_that_was_added_begins_with_the_first_record_that_it_ever_had() -> None:
    since, now = at((0, 3)), at((2, 5), (7, 9))
    assert ranges(since, now) == {("t", 0): Range(3, 5), ("t", 1): Range(0, 9)}
    assert lost(since, now) == {("t", 1): Range(0, 7)}
    assert lost(since, at((0, 3), (9, 9))) == {("t", 1): Range(0, 9)}, "with nothing that is left to read"
    assert lost(since, at((0, 3), (0, 9))) == {} and ranges(since, at((0, 3), (0, 0))) == {}
    assert [one.next for one in after(since, at((0, 3), (0, 9)), 4).ends().values()] == [3, 4]


def test_a_stream_keeps_where_it_met_a_topic_whatever_is_removed_later() -> None:
    met = continued(at((0, 3), topic="s"), at((2, 5)))
    later = continued(met, at((4, 8)))
    assert ranges(at((0, 3), topic="s"), later) == {("t", 0): Range(2, 8)}
    assert gaps(ranges(at((0, 3), topic="s"), later), at((4, 8))) == {("t", 0): Range(2, 4)}


@pytest.mark.parametrize(
    ("most", "nexts"), [(None, [10, 4, 1]), (15, [10, 4, 1]), (14, [9, 4, 1]), (3, [2, 1, 0]), (1, [1, 0, 0])]
)
def test_an_epoch_takes_from_each_partition_its_share(most: int | None, nexts: list[int]) -> None:
    since, upto = at((0, 0), (0, 0)), at((0, 10), (0, 4), (0, 1))
    found = after(since, upto, most)
    assert [ends.next for ends in found.ends().values()] == nexts


@pytest.mark.parametrize("seed", range(20))
def test_epochs_read_each_record_once_and_no_more_than_they_may(seed: int) -> None:
    random = Random(seed)
    since = at(*((0, random.randrange(5)) for _ in range(random.randrange(4))))
    upto = at(*((0, random.randrange(5, 40)) for _ in range(5)))
    most, seen = random.randrange(1, 12), list[tuple[int, int]]()
    place = since
    while ranges(place, upto):
        following = after(place, upto, most)
        taken = ranges(place, following)
        assert 0 < sum(one.high - one.low for one in taken.values()) <= most
        seen += [(number, offset) for (_, number), one in taken.items() for offset in range(*one)]
        place = following
    assert place.ends() == upto.ends()
    assert sorted(seen) == sorted(
        (number, offset) for (_, number), one in ranges(since, upto).items() for offset in range(*one)
    )


def test_what_was_removed_before_it_was_read() -> None:
    read, now = at((0, 3), (0, 5), (0, 7)), at((4, 9), (5, 9), (6, 9))
    assert lost(read, now) == {("t", 0): Range(3, 4)}
    wanted = {("t", 0): Range(1, 3), ("t", 1): Range(5, 6), ("gone", 0): Range(0, 1)}
    assert gaps(wanted, now) == {("t", 0): Range(1, 3), ("gone", 0): Range(0, 1)}


def test_topics_that_are_others_or_shorter_than_what_was_read() -> None:
    assert recreated(at((0, 3)), at((0, 9), known="2")) == ["t"]
    assert recreated(at((0, 3), known=NO_ID), at((0, 9), known="2")) == []
    assert recreated(at((0, 3), known="2"), at((0, 9), known=NO_ID)) == []
    assert recreated(at((0, 3)), at((0, 9))) == recreated(at((0, 3)), at((0, 9), topic="u", known="2")) == []
    assert shortened(at((0, 3), (0, 4), (0, 1)), at((0, 3), (0, 3))) == {("t", 1): 3, ("t", 2): 0}


def test_a_topic_that_is_hidden_for_a_while_is_read_on_from_where_it_was() -> None:
    read = KafkaOffset("c", {**at((0, 100), topic="a").topics, **at((0, 50), topic="b").topics})
    hidden = continued(read, at((0, 60), topic="b"))
    assert ranges(read, hidden) == {("b", 0): Range(50, 60)}
    again = KafkaOffset("c", {**at((0, 101), topic="a").topics, **at((0, 60), topic="b").topics})
    assert ranges(hidden, again) == {("a", 0): Range(100, 101)}
    assert recreated(hidden, at((0, 9), topic="a", known="other")) == ["a"]


def test_an_end_before_what_was_read_reads_nothing_again() -> None:
    """Of a partition, too, that cannot be seen for a while: else it would be read from 0 as an added one."""
    read = at((2, 9), (0, 4))
    for answer in (at((5, 7), (0, 4)), at((5, 9)), at()):
        after_it = continued(read, answer)
        assert ranges(read, after_it) == {}
        assert ranges(after_it, at((5, 10), (0, 6))) == {("t", 0): Range(9, 10), ("t", 1): Range(4, 6)}
    assert shortened(read, at((5, 7), (0, 4))) == {("t", 0): 7}, "a run that begins says so"


def test_a_topic_keeps_its_id_beside_a_broker_that_gives_none() -> None:
    """As during an upgrade of the brokers, one by one."""
    without = continued(at((0, 3), known="1"), at((0, 5), known=NO_ID))
    assert without == at((0, 5), known="1")
    assert recreated(without, at((0, 9), known="2")) == ["t"]
    assert continued(at((0, 3), known=NO_ID), at((0, 5), known="1")) == at((0, 5), known="1")
