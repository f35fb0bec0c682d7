"""Fields of the form: how each is shown, what is read from it, and which words of the command line it becomes."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import Param
from airflow.sdk.exceptions import AirflowFailException

if TYPE_CHECKING:
    from floodmark.core.rules.rule import Rule

Params = Mapping[str, Any]  # the values of the form


@dataclass(frozen=True)
class Field(ABC):
    """`name`: in the form; `about`: a line about it, for the user who fills it in.

    `schema`: what its JSON Schema has beside a type. `empty`: its value to begin with. `required`: whether the
    operation refuses to start without it. Airflow must not require it, because all operations share one form.
    """

    name: str
    about: str
    kind: ClassVar[str] = "string"
    schema: ClassVar[dict[str, Any]] = {}
    empty: ClassVar[Any] = None
    required: ClassVar[bool] = False

    def param(self, section: str) -> Param:
        """The field as Airflow shows it, in the section of its operation, which starts folded."""
        about = f"Required: {self.about}" if self.required else f"Optional: {self.about}"
        return Param(self.empty, type=["null", self.kind], description=about, section=section, **self.schema)

    @abstractmethod
    def read(self, rule: Rule, params: Params) -> Any:
        """What was filled in. Raises AirflowFailException for what it cannot mean."""

    @abstractmethod
    def words(self, value: Any) -> list[str]:
        """Of the command line."""


class Flag(Field):
    """Yes or no; an option of the command has its name."""

    kind: ClassVar = "boolean"
    empty: ClassVar = False

    def read(self, rule: Rule, params: Params) -> bool:
        return bool(params.get(self.name))

    def words(self, value: bool) -> list[str]:
        return [f"--{self.name.replace('_', '-')}"] if value else []


class Text(Field):
    """A text, None where nothing is written; an option of the command has its name."""

    def read(self, rule: Rule, params: Params) -> Any:
        return str(params.get(self.name) or "").strip() or None

    def words(self, value: Any) -> list[str]:
        """With `=`, so that no value is taken for an option."""
        return [] if value is None else [f"--{self.name}={value}"]


class Word(Text):
    """A text that the command has by its place. What it may be says a subclass, so that it is never an option."""

    def words(self, value: str) -> list[str]:
        return [value]


class Choice(Text):
    """One of some words; None where nothing is chosen. An option of the command has its name."""

    choices: ClassVar[tuple[str, ...]]

    def __init_subclass__(cls) -> None:
        cls.schema = {"enum": [None, *cls.choices]}

    def read(self, rule: Rule, params: Params) -> str | None:
        found: str | None = super().read(rule, params)
        if found in self.choices or (found is None and not self.required):
            return found
        words = f"{', '.join(self.choices[:-1])} or {self.choices[-1]}"
        raise AirflowFailException(f"{self.name}: expected {words}, found {found!r}")


class Texts(Text):
    """Any number of texts; the option is repeated for each."""

    kind: ClassVar = "array"
    schema: ClassVar = {"items": {"type": "string"}}
    empty: ClassVar[Any] = []

    def read(self, rule: Rule, params: Params) -> tuple[str, ...]:
        return tuple(str(one) for one in params.get(self.name) or [])

    def words(self, value: tuple[str, ...]) -> list[str]:
        return [word for one in value for word in super(Texts, self).words(one)]


def asks(of: Field) -> Any:
    """A dataclass's field that has what a field of the form says."""
    return dataclasses.field(metadata={Field: of})


def fields_of(operation: Any) -> dict[str, Field]:
    """The fields of the form, by the dataclass's own that have what they say."""
    return {one.name: one.metadata[Field] for one in dataclasses.fields(operation) if Field in one.metadata}
