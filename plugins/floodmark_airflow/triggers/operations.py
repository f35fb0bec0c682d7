"""Operations of a manual DAG run: each calls a command of Floodmark, and has its own fields in the form.

A new one is a class like `resets.Reset`, and its place in `forms.OPERATIONS`. It declares each field of the form once.
The command does the work; what is here looks before it, without a JVM, and believes it by what it has left in the
ledger.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NoReturn, Self

from airflow.sdk import Param
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from floodmark.errors import Refused
from floodmark_airflow import settings
from floodmark_airflow.triggers.fields import Params, fields_of

if TYPE_CHECKING:
    from floodmark.core.protocol.records.head import Head
    from floodmark.core.rules.rule import Rule
    from floodmark.ledger.home import Home
    from floodmark.ledger.ledger import LedgerReader
    from floodmark_airflow.tries import Tries


@dataclass(frozen=True, kw_only=True)
class Operation(ABC):
    """`name`: in the form; `about`: a line for who chooses.

    `options`: those that the command always gets. `confirm`: why the form asks for the rule's name; None: it does not.
    `writes`: whether it changes rows of the sinks, which their readers are woken for. `dry_run`: it is only to be said
    what would change.
    """

    name: ClassVar[str]
    about: ClassVar[str]
    options: ClassVar[tuple[str, ...]] = ("--yes",)
    confirm: ClassVar[str | None] = None
    writes: ClassVar[bool] = True
    dry_run: bool = False

    @property
    def command(self) -> tuple[str, ...]:
        """Words of the command line."""
        return (self.name,)

    @classmethod
    def params(cls) -> dict[str, Param]:
        """The fields of its own: all but `operation`, `confirm` and `dry_run`, which operations share."""
        return {one.name: one.param(f"Fields of {cls.name}") for one in fields_of(cls).values()}

    @classmethod
    def takes(cls) -> tuple[str, ...]:
        """The names of the fields that may be filled in for it, apart from `dry_run`."""
        return (*cls.params(), *(["confirm"] if cls.confirm is not None else []))

    @classmethod
    def from_form(cls, rule: Rule, params: Params) -> Self:
        """What the form asks for. Raises AirflowFailException for what it cannot mean."""
        given = {name: one.read(rule, params) for name, one in fields_of(cls).items()}
        if cls.confirm is not None:
            _check_confirmed(rule, params, cls.confirm)
        return cls(dry_run=bool(params.get("dry_run")), **given)

    def arguments(self) -> list[str]:
        """Of the command, after the rule's name."""
        given = [word for name, one in fields_of(self).items() for word in one.words(getattr(self, name))]
        return [*self.options, *given, *(["--dry-run"] if self.dry_run else [])]

    @abstractmethod
    def preview(self, rule: Rule) -> str:
        """What the operation will do. Raises the error that refuses it, or AirflowSkipException: nothing to do."""

    @abstractmethod
    def done(self, rule: Rule, tries: Tries) -> str | None:
        """What these tries have done, by the ledger; None if they have not completed it."""

    def judge_nothing(self, rule: Rule) -> NoReturn:
        """Called if the command succeeded, but the ledger has no row of it."""
        raise AirflowException(f"rule {rule.rule}: {self.name} ended, but the rule's ledger has none by this run")


def _check_confirmed(rule: Rule, params: Params, why: str) -> None:
    """Raise AirflowFailException unless the form has the rule's name in `confirm`, or asks for a dry run."""
    if not params.get("dry_run") and params.get("confirm") != rule.rule:
        raise AirflowFailException(
            f"confirm: {why}; expected the rule's name, {rule.rule}, found {params.get('confirm')!r}. `dry_run` says "
            "what would happen"
        )


def home_of(rule: Rule) -> Home:
    """Where the rule's tables lie."""
    from floodmark.ledger.home import Home

    return Home(settings.home_folder(), rule.rule)


def ledger_of(rule: Rule) -> LedgerReader:
    """The ledger of a rule that has run. Raises Refused for one that has not."""
    from floodmark.ledger.ledger import LedgerReader

    found = LedgerReader.load(home_of(rule).ledger)
    if found is None or found.head is None:
        raise Refused(f"rule {rule.rule} has not run yet: there is nothing to work on")
    return found


def head_of(rule: Rule) -> Head:
    """The last committed epoch of a rule that has run. Raises Refused for one that has not."""
    return ledger_of(rule).begun
