"""Topics that were read and are not there any more, beside brokers that only answer."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from floodmark.cli.commands import validate
from floodmark.connectors import preflight
from floodmark.connectors.backlog import news
from floodmark.connectors.relay import relaying
from floodmark.connectors.sources.kafka import source as kafka_source
from floodmark.connectors.sources.kafka.offsets import NO_ID, Ends, KafkaOffset, Topic
from floodmark.connectors.sources.kafka.source import KafkaSource
from floodmark.core.rules.model import Stream
from floodmark.errors import HistoryGone, NotThereYet


def offset(*topics: str) -> KafkaOffset:
    return KafkaOffset("c", {name: Topic("1", {0: Ends(0, 3)}) for name in topics})


def source_of(monkeypatch: pytest.MonkeyPatch, there: list[str], **said: Any) -> KafkaSource:
    """A source whose brokers have the topics `there`."""

    def topics(wanted: list[str], pattern: str | None, committed: bool = True) -> KafkaOffset:
        for one in wanted:
            if one not in there:
                raise NotThereYet(f"no topic {one}: create it, or correct its name")
        return offset(*there)

    brokers = SimpleNamespace(topics=topics, beginning=lambda prefix: there)
    monkeypatch.setattr(KafkaSource, "_brokers", brokers)
    options = {"connection": "c", "format": "text", **said}
    return KafkaSource("events", Stream(kind="kafka", address="kafka://c/x", options=options))


def test_a_topic_of_a_pattern_that_is_not_there_any_more_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    source, read = source_of(monkeypatch, ["a.2"], pattern="a[.].*"), offset("a.1", "a.2").line()
    told = "topic a.1 was read, and is not there now: if it was deleted, records that were not read are lost"
    found = source.backlog(read)
    assert (found.text, found.facts["topics_not_there"]) == (f"nothing new; {told}", ["a.1"])
    assert source.notices(read) == (f"stream events: {told}",) and not source.is_another(read)
    assert source.notices(offset("a.2").line()) == ()
    five = [f"a.{n}" for n in range(10, 15)]
    assert "topic a.10, a.11, a.12 and 2 more was read" in source.notices(offset(*five).line())[0]


@pytest.mark.parametrize("said", [{"topic": "a"}, {"topics": ["a", "b"]}])
def test_a_named_topic_that_was_read_and_is_not_there_stops_the_run(
    monkeypatch: pytest.MonkeyPatch, said: dict[str, Any]
) -> None:
    source = source_of(monkeypatch, ["b"], **said)
    with pytest.raises(HistoryGone, match=r"topic a was read, and is not there now: .* \(before a reset, make one"):
        source.check_identity(offset("a", "b").line(), None)
    with pytest.raises(NotThereYet):
        source.check_identity(offset("b").line(), None)


def test_a_look_says_so_although_the_end_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    source = source_of(monkeypatch, [], topic="a")
    rule: Any = SimpleNamespace(rebuild=False, streams={"events": None})
    head: Any = SimpleNamespace(seal=None, lines={"events": offset("a").line()}, log_sums={})
    with pytest.raises(HistoryGone, match="topic a was read"):
        news._ends({"events": source}, news._lines(rule, head), head)
    sealed: Any = SimpleNamespace(**{**vars(head), "seal": "reset"})
    for other in (None, sealed):
        with pytest.raises(NotThereYet):
            news._ends({"events": source}, news._lines(rule, other), other)


@pytest.mark.parametrize("older", [1, 100])
def test_an_older_end_is_asked_for_again_before_a_run_stops(monkeypatch: pytest.MonkeyPatch, older: int) -> None:
    source, read = source_of(monkeypatch, ["a"], topic="a"), offset("a")
    answers = iter([read.moved({("a", 0): 2})] * older + [read])
    monkeypatch.setattr(source._brokers, "topics", lambda *_: next(answers))
    now = iter(range(100))
    monkeypatch.setattr(kafka_source, "time", SimpleNamespace(monotonic=lambda: next(now), sleep=lambda _: None))
    if older == 1:
        return source.check_identity(read.line(), None)
    with pytest.raises(HistoryGone, match="it was read up to offset 3, and now ends at 2"):
        source.check_identity(read.line(), None)


@pytest.mark.parametrize(("cluster", "known"), [("c", "2"), ("d", "1")])
def test_a_topic_that_is_made_anew_during_a_run_is_not_read(
    monkeypatch: pytest.MonkeyPatch, cluster: str, known: str
) -> None:
    """Whether its epochs were planned before, or are planned behind it."""
    source = source_of(monkeypatch, ["a"], topic="a")
    begin, end = offset("a").moved({("a", 0): 1}).line(), source.end()
    anew = KafkaOffset(cluster, {"a": Topic(known, {0: Ends(0, 9)})})
    monkeypatch.setattr(source._brokers, "topics", lambda *_: anew)
    said = "was deleted and made anew" if known == "2" else "expected Kafka's cluster c, found d"
    none: Any = None
    for ask in (
        lambda: source.take_end(begin),
        lambda: source.frame(none, begin, end),
        lambda: source.frame(none, begin, anew.line()),
    ):
        with pytest.raises(HistoryGone, match=said):
            ask()


def test_topics_without_ids_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    source = source_of(monkeypatch, ["a"], topic="a")
    assert source.cautions() == ()
    unnamed = KafkaOffset("c", {"a": Topic(NO_ID, {0: Ends(0, 3)}), "b": Topic("1", {})})
    told = "stream events: the brokers give topic a no id, so a topic that is deleted and made anew may not be noticed"
    assert [one.partition(":")[0] for one in source.notices(unnamed.line())] == ["stream events"]
    monkeypatch.setattr(source._brokers, "topics", lambda *_: unnamed)
    (said,) = source.cautions()
    assert said.startswith(told) and source.notices(unnamed.line()) == (said,)


def test_validate_tells_cautions(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    rule: Any = SimpleNamespace(rule="counted")
    monkeypatch.setattr(preflight, "check_next", lambda *_: None)
    source = source_of(monkeypatch, ["a"], topic="a")
    monkeypatch.setattr(KafkaSource, "cautions", lambda _: ("beware",))
    monkeypatch.setattr(preflight, "sources", lambda *_: {"events": source})
    monkeypatch.setattr(relaying, "check_targets", lambda *_: None)
    found = validate._connected(validate.Result("counted.yaml", rule), Path("home"))
    validate._report([found])
    assert capsys.readouterr().out == "OK  counted.yaml\n  warning: beware\n"
    assert found.facts()["warnings"] == ["beware"]
