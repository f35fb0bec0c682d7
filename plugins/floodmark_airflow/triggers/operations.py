"""Operations of a rule that its DAG does when it is asked to: each a command of Floodmark, with its part of the form.

A new one is a class like `resets.Reset`, and its place in `forms.OPERATIONS`. The command does the work; what is here
looks before it, without a JVM, and believes it by what it has left in the ledger.
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
    """`name`: in the form; `command`: words of the command line; `about`: a line for who chooses.

    `writes`: whether it changes rows of the sinks, which their readers are woken for. `dry_run`: it is only to be said
    what would change.
    """

    name: ClassVar[str]
    command: ClassVar[tuple[str, ...]]
    about: ClassVar[str]
    writes: ClassVar[bool] = True
    dry_run: bool = False

    @classmethod
    @abstractmethod
    def params(cls) -> dict[str, Param]:
        """What the form asks for beside `operation` and `dry_run`."""

    @classmethod
    @abstractmethod
    def asked(cls, rule: Rule, params: Params) -> Operation:
        """What the form asks for. Raises AirflowFailException for what it cannot mean."""

    @abstractmethod
    def arguments(self) -> list[str]:
        """Of the command, after the rule's name."""

    @abstractmethod
    def look(self, rule: Rule) -> str:
        """What is about to be done. Raises what the command would refuse with; AirflowSkipException: nothing is."""

    @abstractmethod
    def done(self, rule: Rule, tries: Tries) -> str | None:
        """What these tries have done of it, by the ledger; None: not all of it."""

    def judge_nothing(self, rule: Rule) -> NoReturn:
        """The command ended well, and has left nothing in the ledger."""
        raise AirflowException(f"rule {rule.rule}: {self.name} ended, yet the rule's ledger has none by this run")


def confirmed(rule: Rule, params: Params, why: str) -> None:
    """Raise AirflowFailException unless the form has the rule's name in `confirm`, or asks for a dry run."""
    if not params.get("dry_run") and params.get("confirm") != rule.rule:
        raise AirflowFailException(
            f"confirm: {why}; expected the rule's name, {rule.rule}, found {params.get('confirm')!r}. `dry_run` says "
            "what would happen"
        )


def ledger_of(rule: Rule) -> LedgerReader:
    """The ledger of a rule that has run. Raises Refused for one that has not."""
    from floodmark.ledger.home import Home
    from floodmark.ledger.ledger import LedgerReader

    found = LedgerReader.load(Home(settings.home_folder(), rule.rule).ledger)
    if found is None or found.head is None:
        raise Refused(f"rule {rule.rule} has not run yet: there is nothing to work on")
    return found


def text(params: Params, name: str) -> str | None:
    """What was written into a field of the form; None for nothing."""
    found = str(params.get(name) or "").strip()
    return found or None
