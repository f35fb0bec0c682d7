"""Manual run: take back an open epoch (`floodmark abandon`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from floodmark.core.lifecycle.abandoning import abandonable
from floodmark_airflow.triggers.operations import Operation, Params, confirmed, ledger_of

if TYPE_CHECKING:
    from airflow.sdk import Param

    from floodmark.core.rules.rule import Rule
    from floodmark_airflow.tries import Tries


@dataclass(frozen=True, kw_only=True)
class Abandon(Operation):
    """Requires the rule's name as confirmation, because it removes rows of sinks. The command checks these first."""

    name: ClassVar = "abandon"
    command: ClassVar = ("abandon",)
    about: ClassVar = "take back an open epoch that no run can finish; the next run reads its input again"

    @classmethod
    def params(cls) -> dict[str, Param]:
        return {}

    @classmethod
    def asked(cls, rule: Rule, params: Params) -> Abandon:
        confirmed(rule, params, "an abandon takes back what the open epoch has written")
        return cls(dry_run=bool(params.get("dry_run")))

    def arguments(self) -> list[str]:
        return ["--yes", *(["--dry-run"] if self.dry_run else [])]

    def look(self, rule: Rule) -> str:
        head = abandonable(ledger_of(rule).head, rule.rule)
        return f"epoch {head.epoch + 1} of generation {head.generation} is taken back"

    def done(self, rule: Rule, tries: Tries) -> str | None:
        ended = [row.epoch for row in ledger_of(rule).rows if row.kind == "abandoned" and row.run in tries]
        return f"epoch {ended[-1]} is abandoned; the next run reads its input again" if ended else None
