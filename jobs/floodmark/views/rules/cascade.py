"""Decides which rules follow what a backfill, a correction or a reset of one rule changes, in which order, and how.
Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from floodmark.core.rules.chains import in_order
from floodmark.core.rules.rule import Rule, Stream
from floodmark.core.text.addresses import identity
from floodmark.core.text.tablenames import last_part
from floodmark.views.rules.downstream import Reader, Readers, readers

Does = Literal["correct", "rebuild", "read", "skip", "look up", "stop", "wait"]
Tables = Mapping[str, str]  # by `identity`, the rule that writes it
_ORDER: tuple[Does, ...] = ("stop", "correct", "read", "skip")
WRITING = ("correct", "rebuild", "read")  # what changes rows of a rule's own sinks


@dataclass(frozen=True)
class Step:
    """What a rule does about the changed sinks that it reads. reads: each, `after` the rule that writes it."""

    rule: Rule
    reads: tuple[Reader, ...]
    does: Does

    @property
    def streams(self) -> dict[str, str]:
        """The changed table of each stream that reads one."""
        return {one.name: one.sink for one in self.reads if one.kind == "stream"}

    @property
    def corrects(self) -> dict[str, str]:
        """Those of them whose changes are corrected."""
        found = self.rule.streams
        return {name: sink for name, sink in self.streams.items() if found[name].on_rewrite == "correct"}

    @property
    def writers(self) -> set[str]:
        """The rules whose changes its streams read."""
        return {str(one.after) for one in self.reads if one.kind == "stream"}


def steps(first: Rule, rules: Iterable[Rule]) -> list[Step]:
    """The rules that depend on the sinks of `first`, each after those that it reads as streams.

    Rules that only look rows up in a changed sink come last: they change nothing in their own.
    """
    others = in_order([rule for rule in rules if rule.rule != first.rule])
    known = readers(others)
    changed, waiting = _sinks(first), dict[str, str]()
    found: list[Step] = []
    for rule in others:
        step = _followed(rule, changed, known) or _held_up(rule, waiting, known)
        if step is None:
            continue
        found.append(step)
        if step.does in WRITING:
            changed |= _sinks(rule)
        elif step.does in ("stop", "wait"):
            waiting |= _sinks(rule)
    listed = {step.rule.rule for step in found}
    looking = (Step(rule, _reads(rule, changed, known), "look up") for rule in others if rule.rule not in listed)
    whole = [replace(step, reads=_with_lookups(step, changed, known)) for step in found]
    return [*whole, *(step for step in looking if step.reads)]


def _followed(rule: Rule, changed: Tables, known: Readers) -> Step | None:
    reads = _reads(rule, changed, known)
    streams = [rule.streams[one.name] for one in reads if one.kind == "stream"]
    return Step(rule, reads, _does(rule, streams)) if streams else None


def _held_up(rule: Rule, waiting: Tables, known: Readers) -> Step | None:
    reads = tuple(one for one in _reads(rule, waiting, known) if one.kind == "stream")
    return Step(rule, reads, "wait") if reads else None


def _with_lookups(step: Step, changed: Tables, known: Readers) -> tuple[Reader, ...]:
    """Its reads, with the lookups in sinks that rules after it change."""
    lookups = (one for one in _reads(step.rule, changed, known) if one.kind == "lookup")
    return tuple(dict.fromkeys((*step.reads, *lookups)))


def _sinks(rule: Rule) -> dict[str, str]:
    return {identity(sink.address): rule.rule for sink in rule.sinks if sink.address}


def _reads(rule: Rule, tables: Tables, known: Readers) -> tuple[Reader, ...]:
    mine = (one for table in tables for one in known.get(table, ()) if one.rule == rule.rule)
    return tuple(sorted((replace(one, after=tables[identity(one.sink)]) for one in mine), key=lambda one: one.name))


def _does(rule: Rule, streams: Sequence[Stream]) -> Does:
    """What a rule does about changes of these streams. One that stops it stops the whole rule."""
    if rule.rebuild:
        return "rebuild"
    answers = {"read" if one.changes else one.on_rewrite for one in streams}
    return next(answer for answer in _ORDER if answer in answers)


def effect(step: Step) -> str:
    """What a rule does, for people; of one that corrects without what it recomputes."""
    return _EFFECTS[step.does].format(rule=step.rule.rule, after=", ".join(sorted(step.writers)))


_EFFECTS: dict[Does, str] = {
    "correct": "its next run corrects its results (`on_rewrite: correct`)",
    "rebuild": "its next run computes all of it again (`rebuild: true`)",
    "read": "its next epochs read the changes as rows (`changes: true`)",
    "skip": "its next run passes the commit over (`on_rewrite: skip`): its results stay as they are",
    "look up": "its next epoch looks up the new rows; results that it has written stay as they are",
    "stop": (
        "its next run stops, because no `on_rewrite` says what to do: set `on_rewrite: correct` or `skip` at the "
        "stream, or answer once by `floodmark correct {rule}`, or `floodmark reset {rule}`"
    ),
    "wait": "nothing changes for it until {after} has been answered",
}


def after_reset(rule: Rule, stream: str) -> str:
    """What a rule does after a reset has removed the rows that one of its streams has read, for people."""
    found = rule.streams[stream]
    does = _does(rule, [found])
    if does == "correct" and found.lateness_us is not None:
        return f"{_GONE}, so its next run stops: reset it after the next run of this rule"
    return _AFTER_RESET.get(does, _EFFECTS[does])


_GONE = "rows that it has read are removed"
_AFTER_RESET: dict[Does, str] = {
    "correct": f"{_GONE}, and its next runs correct its results (`on_rewrite: correct`)",
    "skip": "its next run passes the commit over (`on_rewrite: skip`), and all new results come on top",
    "stop": f"{_GONE}, so its next run stops: reset it after this rule",
}


def unknown(step: Step, not_known: Iterable[str]) -> Iterator[str]:
    """Why what a rule would recompute cannot be known, by what is known of the rules before it."""
    for name in sorted(step.writers & set(not_known)):
        yield f"what {name} would change is not known"
    for name in (name for name in step.streams if step.rule.streams[name].changes):
        yield f"stream {name} reads the changes as rows, in epochs after the correction"
    for one in (one for one in step.reads if one.kind == "lookup"):
        yield f"it looks rows up in {last_part(one.sink)}, which {one.after} would have changed before"
