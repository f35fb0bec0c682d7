"""Manual run: reset a rule (`floodmark reset`), a new generation from the start of the input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from airflow.sdk import Param

from floodmark.core.lifecycle.life import check_same_reset
from floodmark_airflow.triggers.operations import Operation, Params, confirmed, ledger_of

if TYPE_CHECKING:
    from floodmark.core.rules.rule import Rule
    from floodmark_airflow.tries import Tries


@dataclass(frozen=True, kw_only=True)
class Reset(Operation):
    """Requires the rule's name as confirmation, because it empties the rule's state and sinks."""

    name: ClassVar = "reset"
    command: ClassVar = ("reset",)
    about: ClassVar = "begin anew from the start of the input; state and sinks are emptied"
    keep_output: bool = False

    @classmethod
    def params(cls) -> dict[str, Param]:
        return {
            "keep_output": Param(
                False,
                type=["null", "boolean"],
                description="Of a reset: leave the sinks' rows; at least once from there on",
            ),
        }

    @classmethod
    def asked(cls, rule: Rule, params: Params) -> Reset:
        confirmed(rule, params, "a reset empties state and sinks")
        return cls(dry_run=bool(params.get("dry_run")), keep_output=bool(params.get("keep_output")))

    def arguments(self) -> list[str]:
        return ["--yes", *(["--keep-output"] if self.keep_output else []), *(["--dry-run"] if self.dry_run else [])]

    def look(self, rule: Rule) -> str:
        head = ledger_of(rule).head
        assert head is not None
        check_same_reset(head, rule.rule, self.keep_output)
        return f"generation {head.generation} ends at epoch {head.epoch}, and a new one begins"

    def done(self, rule: Rule, tries: Tries) -> str | None:
        rows = ledger_of(rule).rows
        begun = [row.generation for row in rows if (row.kind, row.epoch) == ("commit", 0) and row.run in tries]
        return f"generation {begun[-1]} has begun; the next run folds its input" if begun else None
