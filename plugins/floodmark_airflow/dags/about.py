"""A rule's documentation in Airflow's UI: Markdown made from the rule alone, in which user input is escaped.

Everybody who may see the DAG can read it. So it holds none of the rule's code, and names only rules of its own file.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from floodmark.core.protocol.expectations import expectation_results
from floodmark.core.rules.file.schedule import UPSTREAM
from floodmark.core.rules.groups import schedule_of, sources_of
from floodmark.core.rules.rule import AssetSchedule
from floodmark.core.rules.sinks.delivery import delivery
from floodmark.core.rules.sinks.sinkcolumns import describe_sink
from floodmark.core.text.durations import format_duration
from floodmark.views.statewords import describe_state
from floodmark_airflow.naming import dag_id, group_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from floodmark.core.rules.rule import Rule, Sink, Stream
    from floodmark.core.rules.sinks.delivery import SinkDelivery
    from floodmark.views.rules.downstream import Reader


SAFE = "here: Trigger. It is safe at any time: each input row takes effect once, and a run without new input is skipped"


def about(rule: Rule, readers: Sequence[Reader] = ()) -> str:
    """Never ends in `.md`, which Airflow would treat as a file name. `readers`: of the rule's sinks."""
    parts = [
        text(rule.description),
        *_part("Reads", [_stream(name, stream) for name, stream in rule.streams.items()]),
        *_part("Looks up", [f"{code(name)}: {code(one.address)}" for name, one in rule.lookups.items()]),
        *_part(
            "Expects",
            [f"of {one.of}: {text(one.name)}, else {one.on_fail}" for one in expectation_results(rule, {})],
        ),
        *_part("Keeps", [text(sentence) for sentence in describe_state(rule)]),
        *_part("Writes", [_sink(sink, how) for sink, how in zip(rule.sinks, delivery(rule), strict=True)]),
        *_part("Read by", _read_by(readers)),
        *_part("Runs", _schedule(rule)),
        *_part("Freshness", _freshness(rule)),
        *_part("Run it manually", [SAFE, _command(f"floodmark run {rule.rule}")]),
        *_part("Where to look", _where_to_look(rule)),
        *_part("SQL" if rule.process is None else "Class", [_work(rule)]),
    ]
    return "\n\n".join(part for part in parts if part)


def about_group(name: str, rules: Sequence[Rule]) -> str:
    """The documentation of a group. Each of its rules has a DAG of its own, which says more."""
    parts = [
        "Rules that run together in one Spark application, each with its own epochs, failures and retries. If one "
        f"fails, the others continue; the task {code('outcome')} reports the reason.",
        *_part("Rules", [_member(rule) for rule in rules]),
        *_part("Runs", [_when(rules)]),
        *_part("Run it manually", [SAFE, _command(f"floodmark run {' '.join(rule.rule for rule in rules)}")]),
    ]
    return "\n\n".join(parts)


def _member(rule: Rule) -> str:
    said = text(rule.description.strip().split("\n")[0])
    return f"{code(dag_id(rule.rule))}: {said}" if said else code(dag_id(rule.rule))


def text(written: str) -> str:
    """Escape Markdown, so that text shows as written: no link, no image, no HTML, no heading."""
    return re.sub(r"([\\`*_{}\[\]<>()#|~!&])", r"\\\1", written.strip())


def code(written: str) -> str:
    """A code span, on one line; its fence is longer than any run of backticks in it."""
    words = " ".join(written.split())
    fence = "`" * (_longest_run(words) + 1)
    space = " " if "`" in words else ""
    return f"{fence}{space}{words}{space}{fence}"


def block(language: str, written: str) -> str:
    """A code block; its fence is longer than any run of backticks in it."""
    fence = "`" * max(3, _longest_run(written) + 1)
    return f"{fence}{language}\n{written.strip()}\n{fence}"


def _longest_run(written: str) -> int:
    return max(map(len, re.findall("`+", written)), default=0)


def _part(title: str, lines: Iterable[str]) -> list[str]:
    """A heading and its list; nothing if the list is empty."""
    found = "\n".join(f"- {line}" for line in lines)
    return [f"### {title}\n\n{found}"] if found else []


def _stream(name: str, stream: Stream) -> str:
    facts = [f"{code(name)}: {stream.kind} {code(stream.address)}"]
    if stream.rule:
        facts.append(f"written by {code(dag_id(stream.rule))}")
    if stream.event_time:
        facts.append(f"event time {code(stream.event_time.name)}")
    if stream.lateness_us is not None:
        facts.append(f"may come {format_duration(stream.lateness_us)} late")
    if stream.idle_after_us is not None:
        facts.append(f"idle after {format_duration(stream.idle_after_us)} without rows")
    if stream.where:
        facts.append("only some of its rows (`where`)")
    return ", ".join(facts)


def _sink(sink: Sink, how: SinkDelivery) -> str:
    rows = f"merged by {', '.join(map(code, sink.key))}" if sink.key else "added"
    place = code(sink.address) if sink.address else "the run's log"
    facts = [
        f"{code(sink.label)}: {sink.kind} {place}: {how.delivery}",
        f"rows {rows}",
        *map(text, describe_sink(sink.model_copy(update={"where": None}))),
    ]
    return ", ".join([*facts, *(["only some of the results (`where`)"] if sink.where else [])])


def _read_by(readers: Sequence[Reader]) -> list[str]:
    """Only the number of readers: a user of this DAG may lack access to theirs."""
    count = len({one.rule for one in readers})
    what = "1 other rule" if count == 1 else f"{count} other rules"
    return [f"{what}; the task's log of a reset, a backfill, a retirement or a drop names them"] if count else []


def _schedule(rule: Rule) -> list[str]:
    """The rule's schedule, as its file states it."""
    group = [f"with the other rules of its group, by the DAG {code(group_id(rule.group))}"] if rule.group else []
    return [_when([rule]), *group]


def _when(rules: Sequence[Rule]) -> str:
    given = schedule_of(rules)
    if isinstance(given, AssetSchedule):
        return f"when all of these have been updated: {', '.join(map(code, given.assets))}"
    if given == UPSTREAM:
        before = sorted(set(sources_of(rules).values()))
        return f"when {' or '.join(code(dag_id(name)) for name in before)} has written rows"
    return "only when it is started manually" if given is None else f"{code(given)}, in {code(rules[0].timezone)}"


def _freshness(rule: Rule) -> list[str]:
    wanted, said = rule.freshness, []
    if wanted is not None and wanted.max_lag_us is not None:
        said.append(f"the newest processed row of a stream at most {format_duration(wanted.max_lag_us)} old")
    if wanted is not None and wanted.max_late_percent is not None:
        said.append(f"at most {wanted.max_late_percent:g} % of a run's rows late")
    return [*said, f"else: {wanted.on_exceed}"] if wanted is not None else []


def _command(line: str) -> str:
    return f"on a machine with the same settings: {code(line)}"


def _where_to_look(rule: Rule) -> list[str]:
    return [
        "here: the tab Floodmark",
        f"its progress, what is open and what that waits for: {code(f'floodmark status {rule.rule}')}",
        f"what each epoch read and wrote: {code(f'floodmark epochs {rule.rule}')}",
        f"late and dead rows: {code(f'floodmark late {rule.rule}')}, {code(f'floodmark dead list {rule.rule}')}",
        f"proof that each epoch took effect once: {code(f'floodmark audit {rule.rule}')}",
        f"owner: {text(rule.airflow.owner)}",
    ]


def _work(rule: Rule) -> str:
    shown = "the tab Floodmark shows it to users who may see this DAG's code"
    if rule.process is None:
        return shown
    by = ", ".join(map(code, rule.process.key))
    return f"{code(f'{rule.process.module}:{rule.process.name}')}, by {by}: {shown}"
