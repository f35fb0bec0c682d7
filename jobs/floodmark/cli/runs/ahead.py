"""`floodmark run --console`: print the results of the next epoch; write and commit nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from floodmark.cli.shared import output
from floodmark.core.lifecycle.zones import zoned
from floodmark.errors import FloodmarkError, Retired, exit_code, message, worst
from floodmark.ledger.home import Home
from floodmark.ledger.ledger import LedgerReader
from floodmark.views.formats import iso

if TYPE_CHECKING:
    from floodmark.cli.shared.selection import Selection
    from floodmark.core.rules.rule import Rule
    from floodmark.spark.look.ahead import NextEpoch

SHOWN = 20


def print_ahead(selection: Selection, root: Path, master: str) -> int:
    """Print the preview of each rule; return the exit code."""
    faults = dict(selection.faults)
    if selection.rules:
        from floodmark.spark.look.ahead import look_ahead
        from floodmark.spark.session.session import root_session

        session = root_session(master, selection.rules)
        try:
            for rule in selection.rules:
                try:
                    _report(rule, root, look_ahead(session, rule, root, SHOWN))
                except FloodmarkError as fault:
                    if isinstance(fault, Retired) and not selection.by_name:
                        continue
                    faults[rule.rule] = fault
        finally:
            session.stop()
    for found in faults.values():
        output.print_error(message(found))
    return worst([exit_code(found) for found in faults.values()])


def _report(rule: Rule, root: Path, found: NextEpoch) -> None:
    counts, ledger = found.counts, LedgerReader.load(Home(root, rule.rule).ledger)
    of = zoned(rule, ledger.head if ledger else None)
    dropped = f", {counts.dropped} dropped" if counts.dropped else ""
    apart = f"{counts.filtered} filtered{dropped}, {counts.late} late, {counts.dead} dead, {counts.folded} folded"
    output.say(f"{rule.rule}: epoch {found.epoch} would read {counts.read} rows: {apart}")
    for one in found.expected:
        output.say(f"expect {one.text()}")
    if found.after is not None:
        output.say(f"watermark {iso(found.before, of) or 'none yet'} → {iso(found.after, of)}")
    output.table([f"{name} ({kind})" for name, kind in found.columns], [[*map(str, row)] for row in found.rows])
    if found.more:
        output.say(f"… and more: these are the first {len(found.rows)}")
    output.say("nothing was written or committed")
