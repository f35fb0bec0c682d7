"""Manual runs for the rule lifecycle: retire, bring back, recheck, rename, drop and adopt."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NoReturn

from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from floodmark.core.lifecycle.life import check_droppable, describe_undone, rechecking, renaming, retiring, returning
from floodmark_airflow import settings
from floodmark_airflow.triggers.fields import Choice, Flag, Params, Word, asks
from floodmark_airflow.triggers.operations import Operation, head_of, home_of, ledger_of

if TYPE_CHECKING:
    from floodmark.core.protocol.records.rows import Life
    from floodmark.core.rules.rule import Rule
    from floodmark_airflow.tries import Tries


ANEW = "After `drop: all`, the next scheduled run begins anew: pause the DAG, or remove the rule's file, before"


class OfRule(Operation):
    """Changes the rule as a whole, and no row of its sinks."""

    writes: ClassVar = False


class Turn(OfRule):
    """One that a row of the ledger records, and that needs nothing else. `turn`: `what` of the row."""

    turn: ClassVar[str]
    result: ClassVar[str]

    def done(self, rule: Rule, tries: Tries) -> str | None:
        return self.result if _turned(rule, tries, self.turn) else None


@dataclass(frozen=True, kw_only=True)
class Retire(Turn):
    """Nothing runs the rule any more; its scheduled runs are skipped, and say so."""

    name: ClassVar = "retire"
    about: ClassVar = "stop running the rule; all its data stays"
    confirm: ClassVar = "a retired rule no longer runs"
    turn: ClassVar = "retired"
    result: ClassVar = "it is retired"
    as_is: bool = asks(Flag("as_is", "even if an epoch is open, and the sinks may have some of its results"))

    def preview(self, rule: Rule) -> str:
        head = head_of(rule)
        _skip_unless(retiring(head, rule.rule, self.as_is), f"rule {rule.rule} is already retired, {head.retired}")
        left = describe_undone(head)
        return f"the rule no longer runs after epoch {head.epoch}" + (f"; {left}, and stays that way" if left else "")


class Return(Turn):
    """The way back from a retirement."""

    name: ClassVar = "bring back"
    command: ClassVar = ("retire",)
    about: ClassVar = "run a retired rule again, from where it stopped"
    options: ClassVar = ("--undo", "--yes")
    turn: ClassVar = "returned"
    result: ClassVar = "it is back"

    def preview(self, rule: Rule) -> str:
        head = head_of(rule)
        _skip_unless(returning(head, rule.rule), f"rule {rule.rule} is not retired")
        return f"its runs continue after epoch {head.epoch}"


class Recheck(Turn):
    """What failed a check is tried again by the next run."""

    name: ClassVar = "recheck"
    about: ClassVar = "let the next run retry what failed a check"
    turn: ClassVar = "recheck"
    result: ClassVar = "the next run repeats the checks"

    def preview(self, rule: Rule) -> str:
        head = head_of(rule)
        _skip_unless(rechecking(head, rule.rule), f"rule {rule.rule}: no check has failed")
        return f"the next run retries: {head.failed}"


class NewName(Word):
    """A rule's name."""

    required: ClassVar = True

    def read(self, rule: Rule, params: Params) -> str:
        found = super().read(rule, params)
        if found is None or not re.fullmatch(r"\w+", found, re.ASCII):
            raise AirflowFailException(f"{self.name}: expected a name of letters, digits and _, found {found!r}")
        return str(found)


@dataclass(frozen=True, kw_only=True)
class Rename(OfRule):
    """The rule file, and with it the DAG, get the new name by hand, before or after."""

    name: ClassVar = "rename"
    about: ClassVar = "give the rule's home another name; you rename the rule file yourself"
    confirm: ClassVar = "the rule does not run until its file has the new name, too"
    to: str = asks(NewName("rename_to", "the rule's new name"))

    def preview(self, rule: Rule) -> str:
        renaming(head_of(rule), rule.rule, self.to)
        return f"its home moves to {self.to}"

    def done(self, rule: Rule, tries: Tries) -> str | None:
        """Done once the home lies under the new name, whoever renamed it. Taken back: once the name is the old one."""
        from floodmark.ledger.renaming import is_done

        if self.to == rule.rule:
            return None if renaming(head_of(rule), rule.rule, self.to) else f"its name is {self.to}, as before"
        if not is_done(settings.home_folder(), rule.rule, self.to):
            return None
        return f"its home is that of {self.to}; rename the rule file, and `rule` in it, if that is not done"


class Part(Choice):
    """What of a rule: an option of the command for each."""

    choices = ("state", "sinks", "all")
    required: ClassVar = True

    def words(self, value: str) -> list[str]:
        return [f"--{value}"]


@dataclass(frozen=True, kw_only=True)
class Drop(OfRule):
    """Of a retired rule. Tables that are not its own are left, or refused, as the command says."""

    name: ClassVar = "drop"
    about: ClassVar = "permanently remove what a retired rule owns"
    confirm: ClassVar = f"a drop permanently removes tables. {ANEW}"
    what: str = asks(Part("drop", "state tables, sinks, or all data of the rule, with its ledger"))
    leave_others: bool = asks(Flag("leave_others", "skip sinks that the rule doesn't own, instead of refusing"))

    def preview(self, rule: Rule) -> str:
        from floodmark.ledger.dropping import leftover_trash
        from floodmark.ledger.renaming import renamed_to

        home = home_of(rule)
        if self.what == "all" and renamed_to(home) is not None:
            return "freeing its name, from which a rule was renamed"
        if self.what == "all" and not home.path.exists() and leftover_trash(home):
            return "continuing to remove its home"
        check_droppable(head_of(rule), rule.rule)
        return f"dropping its {self.what}" if self.what != "all" else f"dropping all of its data. {ANEW}"

    def done(self, rule: Rule, tries: Tries) -> str | None:
        from floodmark.ledger.dropping import leftover_trash
        from floodmark.ledger.renaming import renamed_to

        home = home_of(rule)
        if self.what == "all":
            left = home.path.exists() or leftover_trash(home) or renamed_to(home) is not None
            return None if left else "nothing is left of it"
        return "dropped" if _turned(rule, tries, "dropped") else None

    def judge_nothing(self, rule: Rule) -> NoReturn:
        if self.what == "all":
            super().judge_nothing(rule)
        raise AirflowSkipException("no such table exists")


class Table(Word):
    """The address of a table."""

    required: ClassVar = True

    def read(self, rule: Rule, params: Params) -> str:
        from floodmark.core.text.addresses import location

        table = super().read(rule, params) or ""
        try:
            return location(table)
        except ValueError as fault:
            raise AirflowFailException(
                f"{self.name}: expected an address of a sink, found {table!r}: {fault}"
            ) from None


@dataclass(frozen=True, kw_only=True)
class Adopt(OfRule):
    """One of the rule's sinks, as it stands in the rule file."""

    name: ClassVar = "adopt"
    about: ClassVar = "take over a table that already holds rows, as a sink"
    confirm: ClassVar = "an adopted table belongs to the rule from then on"
    table: str = asks(Table("table", "the address of one of the rule's sinks"))

    def preview(self, rule: Rule) -> str:
        from floodmark.connectors.delta.adopting import adoptable, sink_at
        from floodmark.ledger.ledger import LedgerReader

        sink_at(rule, self.table)
        ledger = LedgerReader.load(home_of(rule).ledger)
        if adoptable(self.table, ledger.id if ledger else None) is None:
            raise AirflowSkipException(
                f"{self.table} is empty or already belongs to the rule: there is nothing to adopt"
            )
        return f"taking over {self.table}"

    def done(self, rule: Rule, tries: Tries) -> str | None:
        from floodmark.ledger.delta.tables import adopted_at, open_table, owner_of
        from floodmark.ledger.ledger import LedgerReader

        table, ledger = open_table(self.table), LedgerReader.load(home_of(rule).ledger)
        if table is None or ledger is None or owner_of(table) != ledger.id:
            return None
        return f"{self.table} belongs to the rule, except its rows up to version {adopted_at(table)}"


def _skip_unless(due: Life | None, why: str) -> None:
    """`due`: the row that the command would write."""
    if due is None:
        raise AirflowSkipException(why)


def _turned(rule: Rule, tries: Tries, what: str) -> bool:
    """Whether the ledger has a turn of this kind by one of these tries."""
    rows = (row for row in ledger_of(rule).rows if row.kind == "life" and tries.wrote(row))
    return any(json.loads(row.body)["what"] == what for row in rows)
