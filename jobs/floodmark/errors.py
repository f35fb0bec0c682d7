"""Every error Floodmark raises on purpose. The branch says whether a retry can help, and gives the exit code.

FloodmarkError
├── Retryable (1)           failed, a retry may help
│   ├── Busy                another run holds the rule
│   ├── NotThereYet         a table that the rule reads does not exist yet
│   ├── Fenced              another writer moved the ledger or a table on while this run worked
│   └── RunFailed           Spark, the store or the machine failed
├── Refused (2)             the request is wrong: nothing was written
│   ├── RuleInvalid         a rule file that cannot be used
│   │   └── SqlRefused      SQL that cannot be folded exactly
│   │       └── SqlAt       the same, with its place
│   ├── RuleChanged         an edit that the generation's state does not fit
│   ├── Retired             the rule was retired: it does not run until it has been brought back
│   ├── WrongColumn         a column is missing or of the wrong type
│   ├── NotOwned            a sink belongs to somebody else, or holds rows that nobody accounts for
│   └── HomeUnfit           a home that cannot persist
└── Final (3)               failed, a retry cannot help
    ├── ReplayDiffers       an epoch computed again is not what was recorded
    │   └── VerifyFailed    what a table holds of an epoch, or was to get, is not what the epoch computed
    ├── Sealed              this generation was ended by a newer one
    ├── HistoryGone         what recovery needs is no longer there
    ├── SourceBroken        a source does not keep what its kind promises
    ├── InputFault          the SQL fails on a row of the input, or gives rows that a sink cannot take
    ├── ProcessFault        the rule's class fails on a row of the input, or does what no class may
    ├── Stale               results are older, or more rows late, than the rule wants; what was committed stays
    ├── LedgerBroken        the ledger contradicts itself or its tables, or cannot be read
    └── TableBroken         a file of a table is missing, or not as it was written
"""

from __future__ import annotations

from floodmark.redaction import redacted

# As Python spells the bytes of a file's name that are no UTF-8: no text file, database or page takes these characters.
_BYTES = {0xDC00 + byte: f"\\x{byte:02x}" for byte in range(0x80, 0x100)}


def legible(text: str) -> str:
    r"""A name or message as it can be printed and kept anywhere; a byte that is no UTF-8 stands as `\xe9`."""
    return text.translate(_BYTES)


class FloodmarkError(Exception):
    """Root of the tree; `exit_code` is what the command line and Airflow go by.

    What a store's client has said may have passwords in addresses; no message keeps them.
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


class Fenced(Retryable):
    """Another writer moved the ledger or a table on while this run worked."""


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
    """An edit that the generation's state does not fit."""


class Retired(Refused):
    """The rule was retired: it does not run until it has been brought back."""


class WrongColumn(Refused):
    """A column is missing or of the wrong type."""


class NotOwned(Refused):
    """A sink belongs to somebody else, or holds rows that nobody accounts for."""


class HomeUnfit(Refused):
    """A home that cannot persist."""


class Final(FloodmarkError):
    """Failed; a retry cannot help."""

    exit_code = 3


class ReplayDiffers(Final):
    """An epoch computed again is not what was recorded."""


class VerifyFailed(ReplayDiffers):
    """What a table holds of an epoch, or was to get, is not what the epoch computed."""


class Sealed(Final):
    """This generation was ended by a newer one."""


class HistoryGone(Final):
    """What recovery needs is no longer there."""


class SourceBroken(Final):
    """A source does not keep what its kind promises."""


class InputFault(Final):
    """The SQL fails on a row of the input, or gives rows that a sink cannot take."""


class ProcessFault(Final):
    """The rule's class fails on a row of the input, or does what no class may."""


class Stale(Final):
    """Results are older, or more rows late, than the rule wants; what was committed stays."""


class LedgerBroken(Final):
    """The ledger contradicts itself or its tables, or cannot be read."""


class TableBroken(Final):
    """A file of a table is missing, or not as it was written."""


def exit_code(fault: Exception) -> int:
    """1, as for anything that a retry may heal, where Floodmark does not know the error."""
    return fault.exit_code if isinstance(fault, FloodmarkError) else 1


def message(fault: Exception) -> str:
    """What a person is told: Floodmark's own errors speak for themselves, others with their type."""
    return str(fault) if isinstance(fault, FloodmarkError) else redacted(f"{type(fault).__name__}: {fault}")


def worst(codes: list[int]) -> int:
    """Exit code of several rules together: 1 if any may heal, else 3, else 2, else 0."""
    return next((code for code in (1, 3, 2) if code in codes), 0)
