"""Manual run: reset a rule (`floodmark reset`), a new generation from the start of the input."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from floodmark.core.lifecycle.life import check_same_reset
from floodmark_airflow.triggers.fields import Flag, asks
from floodmark_airflow.triggers.operations import Operation, head_of, ledger_of

if TYPE_CHECKING:
    from floodmark.core.rules.rule import Rule
    from floodmark_airflow.tries import Tries


@dataclass(frozen=True, kw_only=True)
class Reset(Operation):
    """Requires the rule's name as confirmation, because it empties the rule's state and sinks."""

    name: ClassVar = "reset"
    about: ClassVar = "start over from the beginning of the input; state and sinks are emptied"
    confirm: ClassVar = "a reset empties state and sinks"
    keep_output: bool = asks(Flag("keep_output", "keep the sinks' rows; at least once from then on"))

    def preview(self, rule: Rule) -> str:
        head = head_of(rule)
        check_same_reset(head, rule.rule, self.keep_output)
        return f"generation {head.generation} ends at epoch {head.epoch}, and a new one starts"

    def done(self, rule: Rule, tries: Tries) -> str | None:
        """A reset that a try began counts, too, if another run has finished it: there is one seal of a generation."""
        rows = ledger_of(rule).rows
        sealed = {json.loads(row.body)["successor"] for row in rows if row.kind == "seal" and tries.wrote(row)}
        first = [row for row in rows if (row.kind, row.epoch) == ("commit", 0)]
        begun = [row.generation for row in first if row.generation in sealed or tries.wrote(row)]
        return f"generation {begun[-1]} has started; the next run processes its input" if begun else None
