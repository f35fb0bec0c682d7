"""Every error Floodmark raises on purpose. The branch says whether a retry can help, and gives the exit code.

FloodmarkError
├── Retryable (1)           failed, a retry may help
│   ├── Busy                another run holds the rule
│   ├── NotThereYet         a table that the rule reads does not exist yet
│   ├── OutboxFull          a target has not got what its outbox may hold
│   ├── Fenced              another writer advanced the ledger or a table during this run
│   └── RunFailed           Spark, the store or the machine failed
├── Refused (2)             the request is wrong: nothing was written
│   ├── RuleInvalid         a rule file that cannot be used
│   │   └── SqlRefused      SQL that cannot be folded exactly
│   │       └── SqlAt       the same, with its place
│   ├── RuleChanged         an edit that the generation's state cannot follow
│   ├── Retired             the rule is retired and does not run until it is brought back
│   ├── WrongColumn         a column is missing or of the wrong type
│   ├── NotOwned            a sink has another owner, or holds rows that are not the rule's
│   └── HomeUnfit           a home that cannot persist
└── Final (3)               failed, a retry cannot help
    ├── ReplayDiffers       a recomputed epoch differs from the recorded one
    │   └── VerifyFailed    rows in a table, or about to be written, differ from what the epoch computed
    ├── Sealed              a newer generation ended this one
    ├── HistoryGone         data that recovery needs is gone
    ├── SourceBroken        a source breaks a promise of its kind
    ├── InputFault          the SQL fails on a row of the input, or gives rows that a sink cannot take
    │   └── Undeliverable   raised by a class of one's own that is a target: these rows it cannot take
    ├── ProcessFault        the rule's class fails on a row of the input, or does something that no class may do
    ├── Stale               results are older, or more rows late, than the rule allows; committed epochs remain
    ├── LedgerBroken        the ledger contradicts itself or its tables, or cannot be read
    └── TableBroken         a file of a table is missing or damaged
"""

from __future__ import annotations

from collections.abc import Mapping

from floodmark.redaction import redacted

# Python represents bytes of file names that are not UTF-8 by these characters; text files, databases and pages reject
# them.
_BYTES = {0xDC00 + byte: f"\\x{byte:02x}" for byte in range(0x80, 0x100)}


def legible(text: str) -> str:
    r"""A name or message that can be printed and stored anywhere; a byte that is not UTF-8 becomes `\xe9`."""
    return text.translate(_BYTES)


class FloodmarkError(Exception):
    """Root of the tree. The command line and Airflow use `exit_code`.

    Messages of a store's client may have passwords in addresses: these are removed from every message.
    """

    exit_code = 1

    def __init__(self, said: str = ""):
        super().__init__(legible(redacted(said)))


class Retryable(FloodmarkError):
    """Failed; a retry may help."""


class Busy(Retryable):
    """Another run holds the rule."""


class NotThereYet(Retryable):
    """A table that the rule reads does not exist yet."""


class OutboxFull(Retryable):
    """A target has not got what its outbox may hold; the rule waits for it."""


class Fenced(Retryable):
    """Another writer advanced the ledger or a table during this run."""


class RunFailed(Retryable):
    """Spark, the store or the machine failed."""


class Refused(FloodmarkError):
    """The request is wrong; nothing was written."""

    exit_code = 2


class RuleInvalid(Refused):
    """A rule file that cannot be used."""


class SqlRefused(RuleInvalid):
    """SQL that cannot be folded exactly."""


class SqlAt(SqlRefused):
    """Refused SQL with its place: `line` and `column` count from 1, `problem` is the message without the place."""

    def __init__(self, problem: str, line: int, column: int) -> None:
        super().__init__(f"sql line {line}, column {column}: {problem}")
        self.problem = problem
        self.line = line
        self.column = column


class RuleChanged(Refused):
    """An edit that the generation's state cannot follow."""


class Retired(Refused):
    """The rule is retired and does not run until it is brought back."""


class WrongColumn(Refused):
    """A column is missing or of the wrong type."""


class NotOwned(Refused):
    """A sink has another owner, or holds rows that are not the rule's."""


class HomeUnfit(Refused):
    """A home that cannot persist."""


class Final(FloodmarkError):
    """Failed; a retry cannot help."""

    exit_code = 3


class ReplayDiffers(Final):
    """A recomputed epoch differs from the recorded one."""


class VerifyFailed(ReplayDiffers):
    """Rows in a table, or about to be written, differ from what the epoch computed."""


class Sealed(Final):
    """A newer generation ended this one."""


class HistoryGone(Final):
    """Data that recovery needs is gone."""


class SourceBroken(Final):
    """A source breaks a promise of its kind."""


class InputFault(Final):
    """The SQL fails on a row of the input, or gives rows that a sink cannot take."""

    token = ""  # of the portion that has the row, if the target has already taken the portions before it


class Undeliverable(InputFault):
    """For a class of one's own to raise: rows of a batch that its target cannot take. `rows`: number in the batch (from
    0) -> reason. Nothing of the batch may have an effect then.
    """

    def __init__(self, rows: Mapping[int, str]):
        said = "; ".join(f"row {number}: {why}" for number, why in list(rows.items())[:3])
        super().__init__(said or "no row is named")
        self.rows = dict(rows)


class ProcessFault(Final):
    """The rule's class fails on a row of the input, or does something that no class may do."""


class Stale(Final):
    """Results are older, or more rows late, than the rule allows; committed epochs remain."""


class LedgerBroken(Final):
    """The ledger contradicts itself or its tables, or cannot be read."""


class TableBroken(Final):
    """A file of a table is missing or damaged."""


def exit_code(fault: Exception) -> int:
    """The error's exit code; 1 (a retry may help) if it is not Floodmark's own."""
    return fault.exit_code if isinstance(fault, FloodmarkError) else 1


def message(fault: Exception) -> str:
    """The message for people: the text of Floodmark's own errors; other errors with their type."""
    return str(fault) if isinstance(fault, FloodmarkError) else redacted(f"{type(fault).__name__}: {fault}")


def worst(codes: list[int]) -> int:
    """Exit code of several rules together: 1 if a retry may help one, else 3, else 2, else 0."""
    return next((code for code in (1, 3, 2) if code in codes), 0)
