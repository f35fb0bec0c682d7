"""A rule's status in one word, for the list of rules."""

from __future__ import annotations

from dataclasses import dataclass

from floodmark.core.lifecycle.freshness import Fresh
from floodmark.views.status.glance import Glance
from floodmark.views.status.rulestatus import describe_deferred, describe_open
from floodmark_airflow.pages.access import DagFacts
from floodmark_airflow.pages.cache import Answer


@dataclass(frozen=True)
class Condition:
    """`kind`: bad, warn, busy, good or idle, for shape and colour; `rank`: sorts rules that need attention first."""

    word: str
    kind: str
    why: str = ""

    @property
    def rank(self) -> int:
        return ("bad", "warn", "busy", "idle", "good").index(self.kind)


READING = Condition("being read", "idle")
HIDDEN = Condition("not shown", "idle", "your Airflow account may not see this DAG's runs")


FAILED = "the newest run failed; its log in Airflow says why"
AGAIN = "the last run failed, and its log in Airflow says why; another is active"


def condition(got: Answer, seen: Glance, dag: DagFacts, holder: str | None, fresh: Fresh | None = None) -> Condition:
    """The first condition that applies, from bad to good. A failure in Airflow may leave no trace in the ledger.

    `fresh`: freshness as of now. A rule that fails by it is stale, whatever else made its newest run fail.
    """
    if seen.fault is not None:
        return Condition("cannot be read", "bad", seen.fault)
    if got.value is None:
        return READING
    stale = fresh.exceeded if fresh else []
    failed = [FAILED if dag.state == "failed" else AGAIN] if dag.failed else []
    if failed and not (fresh and fresh.fails):
        return Condition("failed", "bad", "; ".join([*failed, *stale]))
    if stale:
        return Condition("stale", "bad", "; ".join([*stale, *failed]))
    if (failing := _failing(seen)) is not None:  # also while the rule works: the target's rows do not arrive
        return failing
    if holder is not None:
        return Condition("working", "busy", holder)
    return _of_ledger(seen)


def _failing(seen: Glance) -> Condition | None:
    """Of a target that the rule waits for, or whose last relay failed. What somebody has to decide comes before it."""
    if seen.head is None or seen.head.retired is not None or seen.head.failed is not None:
        return None
    for one in seen.targets:
        if one.full:
            return Condition("waits for a target", "bad", f"target {one.text()}")
        if one.memory.fault is not None:
            return Condition("target at fault", "bad", _named(one.target, one.memory.fault))
    return None


def _named(target: str, fault: str) -> str:
    return fault if target in fault else f"target {target}: {fault}"


def _of_ledger(seen: Glance) -> Condition:
    head = seen.head
    if head is None:
        return Condition("not run yet", "idle")
    if head.retired is not None:
        return Condition("retired", "idle", f"{head.retired}: it no longer runs")
    if head.failed is not None:
        return Condition("failed a check", "bad", head.failed)
    left = describe_open(head)
    if left is not None:
        return Condition("unfinished" if head.seal else "open", "warn", left)
    if seen.refused is not None:
        return Condition("changed" if seen.refused.is_edit else "sink at fault", "bad", seen.refused.said)
    faults = [lag for lag in seen.lag.values() if isinstance(lag, str)]
    if faults:
        return Condition("source at fault", "bad", faults[0])
    if head.deferred:
        return Condition("correcting", "busy", "; ".join(describe_deferred(head)))
    if seen.behind:
        return Condition("behind", "busy", "there is new data; the next run processes it")
    behind = next((one for one in seen.targets if one.portions), None)
    if behind is not None:
        return Condition("target behind", "busy", f"target {behind.text()}; the next relay ships it")
    return Condition("up to date", "good")
