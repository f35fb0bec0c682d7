"""What dry runs of `backfill` and `correct` show: what each sink would lose and gain, and the rules that follow."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from floodmark.cli.shared import output
from floodmark.core.text.tablenames import last_part
from floodmark.errors import FloodmarkError, Refused
from floodmark.views.extents import extent
from floodmark.views.formats import iso

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from floodmark.core.rules.rule import Rule
    from floodmark.spark.look.cascading import Cascade
    from floodmark.spark.rule.backfill.backfilling import BackfillResult
    from floodmark.spark.rule.backfill.rehearsing import Rehearsed
    from floodmark.views.rules.cascade import Step

CascadeOption: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--cascade", help="With --dry-run: also show what the rules that read the sinks would recompute, in order."
    ),
]
PageOption: TypeAlias = Annotated[
    Path | None, typer.Option("--page", metavar="FILE.html", help="With --dry-run: also write it as one HTML page.")
]
Facts = dict[str, Any]
SHOWN = 3  # gaps of an interval


def check_shown(dry_run: bool, cascade: bool, page: Path | None) -> None:
    """Raise Refused for an option that only a dry run has, or a page that cannot be written."""
    if page is not None and not dry_run:
        raise Refused("expected --dry-run next to --page, which shows what would change")
    if page is not None and not page.absolute().parent.is_dir():
        raise Refused(f"--page: expected a folder at {page.absolute().parent}, found none: create it")
    if page is not None and page.is_dir():
        raise Refused(f"--page: expected the name of a file to write, found the folder {page}: name a file in it")
    if cascade and not dry_run:
        raise Refused(
            "expected --dry-run next to --cascade, which only shows what would follow: rules follow by their own runs"
        )


@dataclass(frozen=True)
class Forecast:
    """The rules after one: which they are, and where they lie. `home`: of all of them."""

    steps: Sequence[Step]
    home: Path

    @classmethod
    def of(cls, rule: Rule, folder: Path, home: Path) -> Forecast:
        """All rules of the folder that depend on the rule's sinks."""
        from floodmark.cli.shared.rulechange import good_rules
        from floodmark.views.rules.cascade import steps

        return cls(steps(rule, good_rules(folder)), home)

    @property
    def rules(self) -> list[Rule]:
        return [step.rule for step in self.steps]

    def facts(self, root: SparkSession, first: Rehearsed) -> list[Facts]:
        """What each of them would do after what was rehearsed of the first."""
        from floodmark.spark.look.cascading import Cascade

        cascade, unknown, found = Cascade(root, self.home), set[str](), list[Facts]()
        cascade.take(first)
        for order, step in enumerate(self.steps, 1):
            one = {"order": order, **_step(step), **self._followed(cascade, step, unknown)}
            if one["because"] or one["does"] == "nothing":
                unknown.add(step.rule.rule)
            found.append(one)
        cascade.release()
        return found

    def _followed(self, cascade: Cascade, step: Step, unknown: set[str]) -> Facts:
        """What is known of a rule's recomputation; `because`: why nothing is."""
        from floodmark.spark.look.cascading import idle
        from floodmark.views.rules.cascade import WRITING

        why = idle(step.rule, self.home)
        if why:
            return _nothing(None) | {"does": "nothing", "effect": why}
        if step.does != "correct":
            return _nothing("it is not computed here" if step.does in WRITING else None)
        try:
            why = self._why_not(step, unknown)
            return _nothing(why) if why else _computed(step.rule, cascade.follow(step.rule, step.corrects), self.home)
        except FloodmarkError as fault:
            return _nothing(f"its run would stop: {fault}")

    def _why_not(self, step: Step, not_known: set[str]) -> str | None:
        from floodmark.spark.look.cascading import behind
        from floodmark.views.rules.cascade import unknown

        return next(unknown(step, not_known), None) or behind(step.rule, self.home)


def cascade_facts(forecast: Forecast | None, root: SparkSession, first: Rehearsed | None) -> Facts:
    """`cascade` of the facts, where it was asked for. first: None if nothing would change."""
    if forecast is None:
        return {}
    return {"cascade": [] if first is None else forecast.facts(root, first)}


def _step(step: Step) -> Facts:
    from floodmark.views.rules.cascade import effect

    reads = [{"kind": one.kind, "name": one.name, "sink": one.sink, "writer": one.after} for one in step.reads]
    return {"rule": step.rule.rule, "reads": reads, "does": step.does, "effect": effect(step)}


def _nothing(because: str | None) -> Facts:
    nothing = dict.fromkeys(("from", "to", "keys"))
    return {
        "because": because,
        **nothing,
        "all": False,
        "gaps": [],
        "first_keys": {},
        "rewrites": {},
        "sinks": {},
        "notes": [],
    }


def _computed(rule: Rule, found: Rehearsed, home: Path) -> Facts:
    from floodmark.core.lifecycle.zones import zoned
    from floodmark.ledger.home import Home
    from floodmark.ledger.ledger import LedgerReader

    known = LedgerReader.load(Home(home, rule.rule).ledger)
    assert known is not None
    intent, zone = found.intent, zoned(rule, known.begun)
    advances = intent.maxima != known.begun.maxima
    return {
        **_nothing(None),
        **extent(intent, zone),
        "gaps": [[iso(begin, zone), iso(end, zone)] for begin, end in intent.gaps],
        "keys": intent.most_keys,
        "first_keys": found.first_keys,
        "rewrites": {name: {"left": one.left.rows, "came": one.came.rows} for name, one in intent.rewrites.items()},
        "sinks": sink_facts(found),
        "notes": ["newer rows come: the watermark may advance after it, and give results besides"] if advances else [],
    }


def sink_facts(found: BackfillResult) -> dict[str, Facts]:
    """What is replaced in each sink; of a rehearsal with the rows that it would lose and gain."""
    moves = {sink: vars(one) for sink, one in found.moves.items()}
    return {
        sink: {"before": before, "after": after, **moves.get(sink, {})} for sink, (after, before) in found.sinks.items()
    }


def write_page(file: Path | None, title: str, facts: Facts) -> None:
    """The facts of a dry run as a page, where one was asked for."""
    from floodmark.views.rehearsalpage import page

    if file is None:
        return
    rules = facts.get("cascade")
    told = None if rules is None else [one | {"lines": lines(one)} for one in rules]
    file.write_text(page(title, facts["sinks"], told), encoding="utf-8")


def say_sink(sink: str, rows: Facts) -> None:
    """What would be, or was, replaced in a sink."""
    verb = "would replace" if "loses" in rows else "replace"
    output.say(f"  sink {last_part(sink)}: {rows['after']} rows {verb} {rows['before']}")
    for sign, shown, count in (("-", "lost", "loses"), ("+", "gained", "gains")):
        for row in rows.get(shown, ()):
            output.say(f"    {sign} {_text(row)}")
        more = rows.get(count, 0) - len(rows.get(shown, ()))
        if more > 0:
            output.say(f"    {sign} … and {more} more")


def say_steps(found: Sequence[Facts] | None) -> None:
    """What the rules after it would do; None: nobody asked."""
    if found is None:
        return
    output.say("Rules that follow, in this order:" if found else "No other rule reads these sinks.")
    for one in found:
        output.say(f"{one['order']}. {one['rule']} ({', '.join(map(_read, one['reads']))}): {one['effect']}")
        for line in lines(one):
            output.say(f"  {line}")
        for sink, rows in one["sinks"].items():
            say_sink(sink, rows)


def lines(one: Facts) -> list[str]:
    """What is known of what a rule would recompute, one line each."""
    if one["because"]:
        return [f"what it would recompute is not known: {one['because']}"]
    if one["does"] != "correct":
        return []
    moved = [f"stream {name}: {it['left']} rows leave and {it['came']} come" for name, it in one["rewrites"].items()]
    return [*moved, _extent(one), *one["notes"]]


def _extent(one: Facts) -> str:
    if one["all"]:
        return "all results would be recomputed"
    if one["from"] is None and not one["keys"]:
        return "no result depends on these rows"
    if one["from"] is not None:
        return f"results of {one['from']} to {one['to']} would be recomputed{_but(one['gaps'])}"
    keys: list[Facts] = max(one["first_keys"].values(), key=len, default=[])
    more = ", …" if one["keys"] > len(keys) else ""
    return f"results of {one['keys']} keys would be recomputed: {', '.join(map(_text, keys))}{more}"


def _but(gaps: Sequence[Sequence[str]]) -> str:
    if not gaps:
        return ""
    more = f", and {len(gaps) - SHOWN} other stretches" if len(gaps) > SHOWN else ""
    return f", except {', '.join(f'{begin} to {end}' for begin, end in gaps[:SHOWN])}{more}"


def _read(one: Facts) -> str:
    return f"{one['kind']} {one['name']} reads {last_part(one['sink'])} of {one['writer']}"


def _text(row: Facts) -> str:
    return json.dumps(row, ensure_ascii=False)
