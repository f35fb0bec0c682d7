"""Manual run: replay dead rows (`floodmark dead replay`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NoReturn

from airflow.sdk.exceptions import AirflowSkipException

from floodmark_airflow.triggers.fields import Text, Texts, asks
from floodmark_airflow.triggers.operations import Operation, head_of, home_of, ledger_of

if TYPE_CHECKING:
    from floodmark.core.protocol.records.head import Head
    from floodmark.core.rules.rule import Rule
    from floodmark.ledger.home import Home
    from floodmark_airflow.tries import Tries


@dataclass(frozen=True, kw_only=True)
class Replay(Operation):
    """Replays dead rows that no replay has read: all, those of a stream, or those that match a condition."""

    name: ClassVar = "replay dead rows"
    command: ClassVar = ("dead", "replay")
    about: ClassVar = "process dead rows again, corrected or with the fixed rule"
    options: ClassVar = ()
    where: str | None = asks(Text("where", "an SQL condition that the rows match"))
    stream: str | None = asks(Text("stream", "only rows of this stream"))
    corrections: tuple[str, ...] = asks(Texts("set", "COLUMN=SQL to read instead of a column's value"))

    def preview(self, rule: Rule) -> str:
        from floodmark.views.contents.quarantine import left_to_replay

        head, home = head_of(rule), home_of(rule)
        self._meant(head, home)
        if not left_to_replay(head, home):
            raise AirflowSkipException(f"no dead row is left to replay at epoch {head.epoch}")
        return "processing dead rows again"

    def _meant(self, head: Head, home: Home) -> dict[str, object]:
        """Selection and corrections of the replay. Raises Refused for an invalid replay."""
        from floodmark.core.lifecycle.replays import replay_of
        from floodmark.ledger.delta.tables import columns_of, open_table

        table = open_table(home.dead)
        columns = [] if table is None else columns_of(table)
        return replay_of(head, self.stream, self.where, self.corrections, columns).model_dump(exclude={"upto"})

    def done(self, rule: Rule, tries: Tries) -> str | None:
        """Of these rows, so corrected: a try may also have finished what another replay had left open."""
        ledger = ledger_of(rule)
        meant = self._meant(ledger.begun, home_of(rule))
        alike = {epoch for epoch, one in ledger.begun.replays.items() if one.model_dump(exclude={"upto"}) == meant}
        rows = [row for row in ledger.rows if row.generation == ledger.begun.generation]
        ours = {row.epoch for row in rows if row.kind in ("intent", "commit") and tries.wrote(row)}
        found = sorted(ours & alike)
        return f"epoch {found[-1]} has processed them" if found else None

    def judge_nothing(self, rule: Rule) -> NoReturn:
        """Skip: only Spark can evaluate the condition, and it found no row."""
        raise AirflowSkipException("there was no dead row to replay")
