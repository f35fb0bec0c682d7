"""`floodmark dead replay`: fold dead rows again, corrected or with the fixed rule."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from floodmark.cli.shared import options, output
from floodmark.cli.shared.rulechange import generated_run_id
from floodmark.cli.shared.withspark import with_run, with_spark
from floodmark.errors import Refused

if TYPE_CHECKING:
    from floodmark.core.protocol.records.head import Head
    from floodmark.core.protocol.records.rows import Replay, Row
    from floodmark.core.rules.rule import Rule

    Wanted = Callable[[Head], Replay]

SHOWN = 10  # rows of a dry run
PARTS = ("read", "filtered", "dropped", "folded", "late", "dead")


def replay(
    name: options.RuleName,
    where: Annotated[
        str | None, typer.Option("--where", metavar="SQL", help="Only dead rows that match this condition.")
    ] = None,
    corrections: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="COLUMN=SQL", help="Value to read instead of a column's; may be repeated."),
    ] = None,
    stream: Annotated[str | None, typer.Option("--stream", help="Only dead rows of this stream.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would happen to the rows, and exit.")] = False,
    run_id: options.RunId = None,
    rules: options.RulesDir = options.RULES,
    home: options.HomeDir = options.HOME,
    master: options.Master = options.MASTER,
    as_json: options.AsJson = False,
) -> None:
    """Fold dead rows again, in an epoch of their own. A later replay does not read the same rows again.

    Replayed rows are treated like any others: they can be filtered, late, or dead again, and then replayed again. An
    open epoch is finished first. Leave out --set if you fixed the rule or its class.

    Example: `floodmark dead replay departure_delays --where "_reason LIKE 'where%'" --set "n=try_cast(k AS INT)"`
    """
    from floodmark.cli.commands.rows import begun
    from floodmark.core.lifecycle.life import check_living, refuse_rebuilt
    from floodmark.core.lifecycle.replays import replay_of
    from floodmark.ledger.delta.tables import columns_of, open_table
    from floodmark.ledger.forgetting import check_forget_ended
    from floodmark.ledger.home import Home
    from floodmark.views.contents.quarantine import left_to_replay

    root = home.absolute()
    rule, _, head = begun(rules, root, name)
    check_living(head, name)
    check_forget_ended(Home(root, name), head)
    refuse_rebuilt(rule, "dead rows")
    table = open_table(Home(root, name).dead)
    columns = [] if table is None else list(columns_of(table))

    def wanted(now: Head) -> Replay:
        return replay_of(now, stream, where, corrections or [], columns)

    wanted(head)
    if not left_to_replay(head, Home(root, name)):
        return _nothing(name, head.epoch, as_json)
    if dry_run and head.open is not None:
        raise Refused(f"epoch {head.epoch + 1} is open: finish it with `floodmark run {name}`, then try again")
    if dry_run:
        return _rehearsed(rule, root, master, head, wanted, as_json)
    return _replayed(rule, root, master, run_id or generated_run_id(), head, wanted, as_json)


def _nothing(name: str, epoch: int, as_json: bool) -> None:
    if as_json:
        return output.print_json({"rule": name, "epoch": None, "done": True, **dict.fromkeys(PARTS, 0), "shown": []})
    return output.say(f"{name}: nothing to replay at epoch {epoch}")


def _rehearsed(rule: Rule, root: Path, master: str, head: Head, wanted: Wanted, as_json: bool) -> None:
    from floodmark.core.lifecycle.replays import check_not_spent, late_way
    from floodmark.core.protocol.records.rows import total
    from floodmark.spark.look.rehearsal import rehearse
    from floodmark.views.contents.tablerows import plain

    found = with_spark(rule, master, lambda session: rehearse(session, rule, root, head, wanted, SHOWN))
    check_not_spent(rule, head, found.counts)
    counts = total(found.counts).parts
    rows = [{name: plain(value) for name, value in row.items()} for row in found.rows]
    if as_json:
        return output.print_json({"rule": rule.rule, "epoch": None, "done": False, **counts, "shown": rows})
    output.say(f"{rule.rule}: {_counts_text(counts)}, if they are replayed now{late_way(rule, counts['late'])}")
    if rows:
        output.table(list(rows[0]), [list(row.values()) for row in rows])
    return None


def _replayed(rule: Rule, root: Path, master: str, run: str, head: Head, wanted: Wanted, as_json: bool) -> None:
    from floodmark.connectors.preflight import check_without_jvm

    check_without_jvm(rule, root)
    after = with_run(rule, root, master, run, lambda one: one.replay(wanted))
    epoch = max(after.replays, default=None)
    ended = _ended(root, after, epoch) if epoch is not None and epoch not in head.replays else None
    if ended is None or ended.run != run:  # another run reports its own
        return _nothing(rule.rule, after.epoch, as_json)
    return _outcome(rule, ended, as_json)


def _ended(root: Path, head: Head, epoch: int) -> Row | None:
    """The ledger row that ended an epoch of the head's generation; the ledger may hold newer rows by now."""
    from floodmark.ledger.home import Home
    from floodmark.ledger.ledger import LedgerReader

    ledger = LedgerReader.load(Home(root, head.rule.rule).ledger)
    of_epoch = (row for row in ledger.rows if (row.generation, row.epoch) == (head.generation, epoch)) if ledger else ()
    return next((row for row in of_epoch if row.kind in ("commit", "lost")), None)


def _outcome(rule: Rule, ended: Row, as_json: bool) -> None:
    from floodmark.core.lifecycle.replays import late_way
    from floodmark.core.protocol.records.rows import Commit, Lost, total

    lost = Lost.model_validate_json(ended.body) if ended.kind == "lost" else None
    counts = total((lost or Commit.model_validate_json(ended.body)).counts).parts
    name = rule.rule
    if as_json:
        done = {"rule": name, "epoch": ended.epoch, "done": lost is None, **counts, "shown": []}
        return output.print_json(done | ({"lost": lost.lost} if lost else {}))
    if lost is None:
        return output.say(
            f"{name}: epoch {ended.epoch} committed: {_counts_text(counts)}{late_way(rule, counts['late'])}"
        )
    rows = "its dead row is" if lost.lost == 1 else f"its {lost.lost} dead rows are"
    return output.say(f"{name}: epoch {ended.epoch} was lost (qos 0): {rows} counted as lost")


def _counts_text(counts: dict[str, int]) -> str:
    parts = ", ".join(f"{counts[part]} {part}" for part in PARTS[1:] if counts[part])
    rows = "1 dead row" if counts["read"] == 1 else f"{counts['read']} dead rows"
    return f"{rows} read again: {parts or 'none'}"
