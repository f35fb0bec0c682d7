"""Manual runs for the rule lifecycle: retire, bring back, recheck, rename, drop and adopt."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NoReturn

from airflow.sdk import Param
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from floodmark_airflow import settings
from floodmark_airflow.triggers.operations import Operation, Params, confirmed, ledger_of, text

if TYPE_CHECKING:
    from floodmark.core.protocol.records.head import Head
    from floodmark.core.rules.rule import Rule
    from floodmark.ledger.home import Home
    from floodmark.ledger.ledger import LedgerReader
    from floodmark_airflow.tries import Tries


@dataclass(frozen=True, kw_only=True)
class Retire(Operation):
    """Stops the rule. Its scheduled runs are skipped, with this reason."""

    name: ClassVar = "retire"
    command: ClassVar = ("retire",)
    about: ClassVar = "end the running of the rule; all its data stays"
    writes: ClassVar = False
    as_is: bool = False

    @classmethod
    def params(cls) -> dict[str, Param]:
        about = "Of a retirement: also where an epoch is open, and the sinks may have some of its results"
        return {"as_is": Param(False, type=["null", "boolean"], description=about)}

    @classmethod
    def asked(cls, rule: Rule, params: Params) -> Retire:
        confirmed(rule, params, "nothing runs the rule once it is retired")
        return cls(dry_run=bool(params.get("dry_run")), as_is=bool(params.get("as_is")))

    def arguments(self) -> list[str]:
        return ["--yes", *(["--as-is"] if self.as_is else []), *_dry(self)]

    def look(self, rule: Rule) -> str:
        from floodmark.core.lifecycle.life import retiring

        head = _head(rule)
        if retiring(head, rule.rule, self.as_is) is None:
            raise AirflowSkipException(f"rule {rule.rule} is retired already, {head.retired}")
        return f"nothing runs the rule after epoch {head.epoch}"

    def done(self, rule: Rule, tries: Tries) -> str | None:
        return "it is retired" if _turned(ledger_of(rule), tries, "retired") else None


@dataclass(frozen=True, kw_only=True)
class Return(Operation):
    """Brings a retired rule back."""

    name: ClassVar = "bring back"
    command: ClassVar = ("retire",)
    about: ClassVar = "run a retired rule again, where it stood"
    writes: ClassVar = False

    @classmethod
    def params(cls) -> dict[str, Param]:
        return {}

    @classmethod
    def asked(cls, rule: Rule, params: Params) -> Return:
        return cls(dry_run=bool(params.get("dry_run")))

    def arguments(self) -> list[str]:
        return ["--undo", "--yes", *_dry(self)]

    def look(self, rule: Rule) -> str:
        from floodmark.core.lifecycle.life import returning

        head = _head(rule)
        if returning(head, rule.rule) is None:
            raise AirflowSkipException(f"rule {rule.rule} is not retired")
        return f"its runs go on after epoch {head.epoch}"

    def done(self, rule: Rule, tries: Tries) -> str | None:
        return "it is back" if _turned(ledger_of(rule), tries, "returned") else None


@dataclass(frozen=True, kw_only=True)
class Recheck(Operation):
    """Lets the next run retry an epoch or backfill that failed a check."""

    name: ClassVar = "recheck"
    command: ClassVar = ("recheck",)
    about: ClassVar = "let the next run try again what failed a check"
    writes: ClassVar = False

    @classmethod
    def params(cls) -> dict[str, Param]:
        return {}

    @classmethod
    def asked(cls, rule: Rule, params: Params) -> Recheck:
        return cls(dry_run=bool(params.get("dry_run")))

    def arguments(self) -> list[str]:
        return ["--yes", *_dry(self)]

    def look(self, rule: Rule) -> str:
        from floodmark.core.lifecycle.life import rechecking

        head = _head(rule)
        if rechecking(head, rule.rule) is None:
            raise AirflowSkipException(f"rule {rule.rule}: no check has failed")
        return f"the next run tries again: {head.failed}"

    def done(self, rule: Rule, tries: Tries) -> str | None:
        return "the next run checks it again" if _turned(ledger_of(rule), tries, "recheck") else None


@dataclass(frozen=True, kw_only=True)
class Rename(Operation):
    """Renames the rule's home. The user renames the rule file, and so the DAG, before or after."""

    name: ClassVar = "rename"
    command: ClassVar = ("rename",)
    about: ClassVar = "give the rule's home another name; the rule file is renamed by hand"
    writes: ClassVar = False
    to: str

    @classmethod
    def params(cls) -> dict[str, Param]:
        return {"rename_to": Param(None, type=["null", "string"], description="Of a rename: the rule's new name")}

    @classmethod
    def asked(cls, rule: Rule, params: Params) -> Rename:
        to = text(params, "rename_to")
        if to is None or not re.fullmatch(r"\w+", to, re.ASCII):
            raise AirflowFailException(f"rename_to: expected a name of letters, digits and _, found {to!r}")
        confirmed(rule, params, "nothing runs the rule until its file has the new name, too")
        return cls(dry_run=bool(params.get("dry_run")), to=to)

    def arguments(self) -> list[str]:
        return [self.to, "--yes", *_dry(self)]

    def look(self, rule: Rule) -> str:
        from floodmark.core.lifecycle.life import renaming

        renaming(_head(rule), rule.rule, self.to)
        return f"its home moves to {self.to}"

    def done(self, rule: Rule, tries: Tries) -> str | None:
        """Done once the home lies under the new name, whoever renamed it."""
        from floodmark.ledger.renaming import is_done

        if self.to != rule.rule and not is_done(settings.home_folder(), rule.rule, self.to):
            return None
        return f"its home is that of {self.to}; rename the rule file, and `rule` in it, if that is not done"


@dataclass(frozen=True, kw_only=True)
class Drop(Operation):
    """Drops tables of a retired rule. Tables that it doesn't own are left or refused, as the command does."""

    name: ClassVar = "drop"
    command: ClassVar = ("drop",)
    about: ClassVar = "remove what a retired rule owns, for good"
    writes: ClassVar = False
    what: str
    leave_others: bool = False

    @classmethod
    def params(cls) -> dict[str, Param]:
        of = "Of a drop: "
        about = f"{of}state tables, sinks, or all that there is of the rule with its ledger"
        return {
            "drop": Param(None, type=["null", "string"], enum=[None, "state", "sinks", "all"], description=about),
            "leave_others": Param(
                False,
                type=["null", "boolean"],
                description=f"{of}leave sinks that are not the rule's own, instead of refusing",
            ),
        }

    @classmethod
    def asked(cls, rule: Rule, params: Params) -> Drop:
        what = text(params, "drop")
        if what not in ("state", "sinks", "all"):
            raise AirflowFailException(f"drop: expected state, sinks or all, found {what!r}")
        confirmed(rule, params, "a drop removes tables for good")
        return cls(dry_run=bool(params.get("dry_run")), what=what, leave_others=bool(params.get("leave_others")))

    def arguments(self) -> list[str]:
        return [f"--{self.what}", "--yes", *(["--leave-others"] if self.leave_others else []), *_dry(self)]

    def look(self, rule: Rule) -> str:
        from floodmark.core.lifecycle.life import check_droppable
        from floodmark.ledger.dropping import left_aside

        home = _home(rule)
        if self.what == "all" and not home.path.exists() and left_aside(home):
            return "going on with the removal of its home"
        check_droppable(_head(rule), rule.rule)
        return f"dropping its {self.what}" if self.what != "all" else "dropping all that there is of it"

    def done(self, rule: Rule, tries: Tries) -> str | None:
        from floodmark.ledger.dropping import left_aside

        home = _home(rule)
        if self.what == "all":
            return None if home.path.exists() or left_aside(home) else "nothing is left of it"
        return "dropped" if _turned(ledger_of(rule), tries, "dropped") else None

    def judge_nothing(self, rule: Rule) -> NoReturn:
        if self.what == "all":
            super().judge_nothing(rule)
        raise AirflowSkipException("no such table was left")


@dataclass(frozen=True, kw_only=True)
class Adopt(Operation):
    """Adopts a table that is a sink in the rule file."""

    name: ClassVar = "adopt"
    command: ClassVar = ("adopt",)
    about: ClassVar = "take over a table that holds rows already as a sink"
    writes: ClassVar = False
    table: str

    @classmethod
    def params(cls) -> dict[str, Param]:
        about = "Of an adoption: the address of one of the rule's sinks"
        return {"table": Param(None, type=["null", "string"], description=about)}

    @classmethod
    def asked(cls, rule: Rule, params: Params) -> Adopt:
        confirmed(rule, params, "an adopted table belongs to the rule from then on")
        return cls(dry_run=bool(params.get("dry_run")), table=_location(text(params, "table") or ""))

    def arguments(self) -> list[str]:
        return [self.table, "--yes", *_dry(self)]

    def look(self, rule: Rule) -> str:
        from floodmark.connectors.delta.adopting import adoptable, sink_at
        from floodmark.ledger.ledger import LedgerReader

        sink_at(rule, self.table)
        ledger = LedgerReader.load(_home(rule).ledger)
        if adoptable(self.table, ledger.id if ledger else None) is None:
            raise AirflowSkipException(f"{self.table} is empty, or the rule's already: there is nothing to adopt")
        return f"taking over {self.table}"

    def done(self, rule: Rule, tries: Tries) -> str | None:
        from floodmark.ledger.delta.tables import adopted_at, open_table, owner_of
        from floodmark.ledger.ledger import LedgerReader

        table, ledger = open_table(self.table), LedgerReader.load(_home(rule).ledger)
        if table is None or ledger is None or owner_of(table) != ledger.id:
            return None
        return f"{self.table} is the rule's, but for its rows up to version {adopted_at(table)}"


def _location(table: str) -> str:
    from floodmark.core.text.addresses import location

    try:
        return location(table)
    except ValueError as fault:
        raise AirflowFailException(f"table: expected an address of a sink, found {table!r}: {fault}") from None


def _dry(of: Operation) -> list[str]:
    return ["--dry-run"] if of.dry_run else []


def _home(rule: Rule) -> Home:
    from floodmark.ledger.home import Home

    return Home(settings.home_folder(), rule.rule)


def _head(rule: Rule) -> Head:
    head = ledger_of(rule).head
    assert head is not None
    return head


def _turned(ledger: LedgerReader, tries: Tries, what: str) -> bool:
    """Whether one of these tries wrote a lifecycle row of this kind to the ledger."""
    rows = (row for row in ledger.rows if row.kind == "life" and row.run in tries)
    return any(json.loads(row.body)["what"] == what for row in rows)
