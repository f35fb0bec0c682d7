"""Manual run: replay dead rows (`floodmark dead replay`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NoReturn

from airflow.sdk import Param
from airflow.sdk.exceptions import AirflowSkipException

from floodmark_airflow import settings
from floodmark_airflow.triggers.operations import Operation, Params, ledger_of, text

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
    about: ClassVar = "fold dead rows once more, corrected or by the mended rule"
    where: str | None = None
    stream: str | None = None
    corrections: tuple[str, ...] = ()

    @classmethod
    def params(cls) -> dict[str, Param]:
        of = "Of a replay: "
        return {
            "where": Param(None, type=["null", "string"], description=f"{of}SQL that is true for the rows to read"),
            "stream": Param(None, type=["null", "string"], description=f"{of}only rows of this stream"),
            "set": Param(
                [],
                type=["null", "array"],
                items={"type": "string"},
                description=f"{of}COLUMN=SQL to read in place of a column",
            ),
        }

    @classmethod
    def asked(cls, rule: Rule, params: Params) -> Replay:
        return cls(
            dry_run=bool(params.get("dry_run")),
            where=text(params, "where"),
            stream=text(params, "stream"),
            corrections=tuple(str(one) for one in params.get("set") or []),
        )

    def arguments(self) -> list[str]:
        """Each with `=`, so that no value is treated as an option."""
        given = [f"--{name}={value}" for name, value in (("where", self.where), ("stream", self.stream)) if value]
        return [*given, *(f"--set={one}" for one in self.corrections), *(["--dry-run"] if self.dry_run else [])]

    def look(self, rule: Rule) -> str:
        from floodmark.ledger.home import Home
        from floodmark.views.contents.setapart import left_to_replay

        ledger, home = ledger_of(rule), Home(settings.home_folder(), rule.rule)
        assert ledger.head is not None
        self._meant(ledger.head, home)
        if not left_to_replay(ledger.head, home):
            raise AirflowSkipException(f"no dead row is left to replay at epoch {ledger.head.epoch}")
        return "folding dead rows once more"

    def _meant(self, head: Head, home: Home) -> dict[str, object]:
        """Selection and corrections of the replay. Raises Refused for an invalid replay."""
        from floodmark.core.lifecycle.replays import replay_of
        from floodmark.ledger.delta.tables import columns_of, open_table

        table = open_table(home.dead)
        columns = [] if table is None else columns_of(table)
        return replay_of(head, self.stream, self.where, self.corrections, columns).model_dump(exclude={"upto"})

    def done(self, rule: Rule, tries: Tries) -> str | None:
        """Only a replay with this selection and these corrections counts: a try may also have finished another one."""
        from floodmark.ledger.home import Home

        ledger = ledger_of(rule)
        assert ledger.head is not None
        meant = self._meant(ledger.head, Home(settings.home_folder(), rule.rule))
        alike = {epoch for epoch, one in ledger.head.replays.items() if one.model_dump(exclude={"upto"}) == meant}
        ours = {row.epoch for row in ledger.rows if row.kind == "commit" and row.run in tries}
        found = sorted(ours & alike)
        return f"epoch {found[-1]} has folded them" if found else None

    def judge_nothing(self, rule: Rule) -> NoReturn:
        """Skip: only Spark can evaluate the condition, and it found no row."""
        raise AirflowSkipException("no dead row was to be replayed")
