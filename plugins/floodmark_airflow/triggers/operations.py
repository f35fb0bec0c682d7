"""Operations of a manual DAG run: each calls a command of Floodmark, and has its own fields in the form.

To add one, write a class like `resets.Reset`, and add it to `forms.OPERATIONS`. The command does the work. The class
checks beforehand, without a JVM, and afterwards finds the result in the ledger.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from airflow.sdk import Param
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from floodmark.errors import Refused
from floodmark_airflow import settings

if TYPE_CHECKING:
    from floodmark.core.rules.rule import Rule
    from floodmark.ledger.ledger import LedgerReader
    from floodmark_airflow.tries import Tries

Params = Mapping[str, Any]  # the values of the form


@dataclass(frozen=True, kw_only=True)
class Operation(ABC):
    """`name`: in the form; `command`: words of the command line; `about`: a line of help in the form.

    `writes`: whether it changes rows of the sinks, which triggers their readers. `dry_run`: only report what would
    change.
    """

    name: ClassVar[str]
    command: ClassVar[tuple[str, ...]]
    about: ClassVar[str]
    writes: ClassVar[bool] = True
    dry_run: bool = False

    @classmethod
    @abstractmethod
    def params(cls) -> dict[str, Param]:
        """The fields of the form besides `operation`, `confirm` and `dry_run`."""

    @classmethod
    @abstractmethod
    def asked(cls, rule: Rule, params: Params) -> Operation:
        """The operation as filled in. Raises AirflowFailException for invalid values."""

    @abstractmethod
    def arguments(self) -> list[str]:
        """The command's arguments after the rule's name."""

    @abstractmethod
    def look(self, rule: Rule) -> str:
        """What the operation will do. Raises the error that refuses it, or AirflowSkipException: nothing to do."""

    @abstractmethod
    def done(self, rule: Rule, tries: Tries) -> str | None:
        """What these tries have done, by the ledger; None if they have not completed it."""

    def judge_nothing(self, rule: Rule) -> NoReturn:
        """Called if the command succeeded, but the ledger has no row of it."""
        raise AirflowException(f"rule {rule.rule}: {self.name} ended, yet the rule's ledger has none by this run")


def confirmed(rule: Rule, params: Params, why: str) -> None:
    """Raise AirflowFailException unless `confirm` is the rule's name, or `dry_run` is set."""
    if not params.get("dry_run") and params.get("confirm") != rule.rule:
        raise AirflowFailException(
            f"confirm: {why}; expected the rule's name, {rule.rule}, found {params.get('confirm')!r}. `dry_run` says "
            "what would happen"
        )


def ledger_of(rule: Rule) -> LedgerReader:
    """The rule's ledger. Raises Refused if the rule has not run."""
    from floodmark.ledger.home import Home
    from floodmark.ledger.ledger import LedgerReader

    found = LedgerReader.load(Home(settings.home_folder(), rule.rule).ledger)
    if found is None or found.head is None:
        raise Refused(f"rule {rule.rule} has not run yet: there is nothing to work on")
    return found


def text(params: Params, name: str) -> str | None:
    """The value of a text field of the form; None if it is empty."""
    found = str(params.get(name) or "").strip()
    return found or None
