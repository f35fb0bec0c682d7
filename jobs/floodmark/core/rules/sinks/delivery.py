"""Computes a sink's actual delivery: the weakest of its source, its rule and itself. No downgrade is silent."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any

from floodmark.core.rules.kinds import can_of, source_can, stream_can
from floodmark.core.rules.model import Rule, Sink, Stream

AT_MOST_ONCE = "at most once"
AT_LEAST_ONCE = "at least once"
EXACTLY_ONCE = "exactly once"
WORDS = (AT_MOST_ONCE, AT_LEAST_ONCE, EXACTLY_ONCE)  # by qos


@dataclass(frozen=True)
class SinkDelivery:
    """One sink's delivery and why.

    sink: its kind and address. label: its name for people. source, rule, sink_capability, delivery: one of the three
    words each; `rule` is the delivery requested for this sink. weakest: source, rule or sink, whichever determines the
    delivery. fix: the cheapest way to the requested delivery or a better one; None if there is nothing to improve.
    refused: the sink cannot give what the rule requests.
    """

    sink: str
    source: str
    rule: str
    sink_capability: str
    delivery: str
    weakest: str
    fix: str | None
    refused: bool
    label: str

    def facts(self) -> dict[str, Any]:
        """For --json."""
        return {name: value for name, value in asdict(self).items() if name != "label"}

    @property
    def wanted(self) -> str:
        """The delivery that the rule requests for this sink."""
        return self.rule


def delivery(
    rule: Rule, kept_output: bool = False, repeats: Collection[str] = (), generation: int = 1
) -> list[SinkDelivery]:
    """Each sink's delivery, in the order of the sinks.

    kept_output: the generation started with `reset --keep-output`, so a sink's earlier rows may come again. repeats:
    the streams that are sinks of rules for which that is so. generation: the rule's; a reset began each but the first,
    and a target with `on_reset: keep` has kept its rows since.
    """
    can = {name: min(stream_can(stream).qos, stream.qos) for name, stream in rule.streams.items()}
    source = min((min(qos, 1) if name in repeats else qos for name, qos in can.items()), default=2)
    return [_of(sink, source, kept_output, generation > 1 and sink.on_reset == "keep") for sink in rule.sinks]


def before_landing(stream: Stream) -> str | None:
    """What a crash does to rows on the way to a stream's landing; None without a landing."""
    if stream.landing is None:
        return None
    can = source_can(stream.kind)
    if can.rereads:
        return (
            "a crash loses nothing: the source gives rows again that are not landed; exactly once from the landing on"
        )
    if can.lands:
        return "a crash loses nothing: the source keeps rows until they are landed; exactly once from the landing on"
    return "a crash may lose rows that were read and are not landed yet; exactly once from the landing on"


def _of(sink: Sink, source: int, kept_output: bool, kept_rows: bool) -> SinkDelivery:
    best = can_of(sink)
    kept = (kept_output and best.stores_rows) or kept_rows
    can = min(best.qos, 1) if kept else best.qos
    # A sink never makes delivery at-most-once: one that supports less than requested only repeats rows.
    given = min(source, sink.qos, can)
    return SinkDelivery(
        sink=f"{sink.kind} {sink.address}" if sink.address else sink.kind,
        source=WORDS[source],
        rule=WORDS[sink.qos],
        sink_capability=WORDS[can],
        delivery=WORDS[given],
        weakest=_weakest(source, sink.qos, can),
        fix=_fix(sink, source, can, kept, kept_rows),
        refused=best.qos < sink.qos,
        label=sink.label,
    )


def _weakest(source: int, wanted: int, can: int) -> str:
    """The link that determines the delivery; of equals the rule, which is the cheapest to change."""
    given = min(source, wanted, can)
    return "rule" if wanted == given else "sink" if can == given else "source"


def _fix(sink: Sink, source: int, can: int, kept_output: bool, kept_rows: bool) -> str | None:
    if can < sink.qos and not kept_output:
        return f"give the {sink.kind} sink `qos: {can}`"
    if can < sink.qos and kept_rows:
        return (
            "rows of earlier generations stay and come again (`on_reset: keep`): a target that a reset can empty, with "
            "`on_reset: empty`, is exactly once again after `floodmark reset`"
        )
    if can < sink.qos:
        return "`floodmark reset` without --keep-output empties the sink and makes it exactly once again"
    if source < sink.qos:
        return "raise `qos` of the rule that a stream names, or reset that without --keep-output"
    if sink.qos < min(source, can):
        return f"raise `qos` to {min(source, can)}"
    return None
