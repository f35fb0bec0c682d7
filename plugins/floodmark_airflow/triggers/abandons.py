"""Manual run: take back an open epoch (`floodmark abandon`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from floodmark.core.lifecycle.abandoning import abandonable
from floodmark_airflow.triggers.operations import Operation, ledger_of

if TYPE_CHECKING:
    from floodmark.core.rules.rule import Rule
    from floodmark_airflow.tries import Tries


class Abandon(Operation):
    """Requires the rule's name as confirmation, because it removes rows of sinks. The command checks these first."""

    name: ClassVar = "abandon"
    about: ClassVar = "take back an open epoch that no run can finish; the next run reads its input again"
    confirm: ClassVar = "an abandon takes back what the open epoch has written"

    def preview(self, rule: Rule) -> str:
        head = abandonable(ledger_of(rule).head, rule.rule)
        return f"epoch {head.epoch + 1} of generation {head.generation} is taken back"

    def done(self, rule: Rule, tries: Tries) -> str | None:
        rows = ledger_of(rule).rows
        begun = {(row.generation, row.epoch) for row in rows if row.kind == "abandoning" and tries.wrote(row)}
        gone = [row for row in rows if row.kind == "abandoned"]  # by others, too, who finished what a try began
        ended = [row.epoch for row in gone if (row.generation, row.epoch) in begun or tries.wrote(row)]
        return f"epoch {ended[-1]} is abandoned; the next run reads its input again" if ended else None
