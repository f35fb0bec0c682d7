"""Decides on the rule lifecycle: retiring, returning, renaming, dropping tables. Pure.

Each step is a row in the rule's ledger. If it has effects beyond that row, the row comes first, and whoever finds it
continues with them.
"""

from __future__ import annotations

from collections.abc import Mapping

from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.rows import Forgetting, Life, sha
from floodmark.core.rules.rule import Rule
from floodmark.errors import Refused, Retired

GOES_ON = "`floodmark drop` with the same options continues it"
UNFINISHED = f"a drop has not finished: {GOES_ON}"


def check_living(head: Head | None, name: str | None = None) -> None:
    """Raise Retired, or Refused if the rule now has another name than `name` (None: do not check the name)."""
    found = retired_at(head, name)
    if found is not None:
        raise Retired(found)


def retired_at(head: Head | None, name: str | None = None) -> str | None:
    """The sentence that the rule is retired; None if it can run. Raises Refused as `check_living` does."""
    if head is not None and name is not None:
        check_name(head, name)
    if head is None or head.retired is None:
        return None
    known = name or head.name or head.rule.rule
    return (
        f"rule {known} was retired {head.retired}, so nothing runs it; `floodmark retire {known} --undo` reactivates it"
    )


def check_unsealed(head: Head | None, name: str) -> None:
    """Raise Refused during a change of generation."""
    if head is not None and head.seal is not None:
        raise Refused(f"rule {name}: a {head.seal.why} has not finished; `floodmark run {name}` continues it")


def check_same_reset(head: Head, name: str, keep_output: bool) -> None:
    """Raise Refused if a reset of the other kind has not finished: its seal decides whether sinks keep their rows."""
    if head.seal is None or head.seal.keep_output == keep_output:
        return
    kind = "keeps" if head.seal.keep_output else "empties"
    raise Refused(
        f"rule {name}: a reset that {kind} the sinks is in progress; expected another of that kind, found one that "
        f"{'keeps' if keep_output else 'empties'} them: let `floodmark run {name}` finish it, then reset"
    )


def check_name(head: Head, name: str) -> None:
    """Refuse a home whose name is no longer the rule's, because a rename has not finished."""
    if head.name is not None and head.name != name:
        raise Refused(
            f"the home of rule {name} is being renamed to {head.name}, and that has not finished: `floodmark rename "
            f"{name} {head.name}` continues it"
        )


def refuse_rebuilt(rule: Rule, what: str) -> None:
    """Refuse an operation that depends on earlier epochs, for a rule that reads everything again in each run."""
    if rule.rebuild:
        raise Refused(
            f"rule {rule.rule} is rebuilt by each run (`rebuild: true`), so its {what} needs no action: fix the "
            f"source or the rule, and `floodmark run {rule.rule}`"
        )


def describe_pending(head: Head) -> str | None:
    """The open epoch, backfill or change of generation, in words; None if there is none."""
    if head.seal is not None:
        return f"a {head.seal.why} has not finished"
    if head.forgetting is not None:
        return "a forget has not finished: some of the rule's own tables may still have the rows"
    if head.backfill is not None:
        return f"backfill {head.backfill.number} is open: the sinks may have some of its results"
    if head.abandoning:
        return f"epoch {head.epoch + 1} is being abandoned: the sinks may still have some of its results"
    if head.open is not None:
        return f"epoch {head.epoch + 1} is open: the sinks may have some of its results"
    return None


def describe_undone(head: Head) -> str | None:
    """The same, or the rewrites that wait for their correction."""
    waiting = ", ".join(head.deferred)
    return describe_pending(head) or (
        f"rewrites of {waiting} have yet to be corrected: the sinks have the results of before" if waiting else None
    )


def left_to(head: Head, holder: str) -> str:
    """For a run that leaves a correction to another. holder: of the lock under which that run computes it."""
    return f"rewrites of {', '.join(head.deferred)} are left to the run that corrects them: {holder}"


def retiring(head: Head, name: str, as_is: bool) -> Life | None:
    """The row that retires a rule; None if it is retired. Raises Refused if something is open, unless `as_is`."""
    check_name(head, name)
    found = describe_undone(head)
    if head.retired is not None:
        return None
    if found and not as_is:
        raise Refused(
            f"rule {name}: {found}. {_way_to_finish(head, name)} first; with --as-is, the rule is retired as it is"
        )
    return Life(what="retired")


def returning(head: Head, name: str) -> Life | None:
    """The row that brings a rule back; None if it is not retired. Raises Refused if a drop has not finished."""
    check_name(head, name)
    _check_dropped(head, name)
    return None if head.retired is None else Life(what="returned")


def rechecking(head: Head, name: str) -> Life | None:
    """The row that has the failed check repeated; None if no check has failed."""
    check_name(head, name)
    return None if head.failed is None else Life(what="recheck")


def renaming(head: Head, name: str, to: str) -> Life | None:
    """The row that gives a rule another name; None if a rename to it has started. `name`: that of its home.

    A rename that has started can be redirected to another name, and back.
    """
    _check_dropped(head, name)
    return None if (head.name or name) == to else Life(what="renamed", name=to)


def dropping(head: Head, name: str, tables: Mapping[str, str]) -> Life:
    """The row that announces a drop. Raises what `check_droppable` raises."""
    check_droppable(head, name)
    return Life(what="dropping", tables=dict(tables))


def check_droppable(head: Head, name: str) -> None:
    """Raise Refused if the rule can run, or if it was renamed and its home has not been moved yet."""
    check_name(head, name)
    if head.retired is None:
        raise Refused(
            f"rule {name} can run: retire it first with `floodmark retire {name}`, then its tables can be dropped"
        )


def _check_dropped(head: Head, name: str) -> None:
    if head.dropping is not None:
        raise Refused(f"rule {name}: a drop of {', '.join(head.dropping.tables)} has not finished: {GOES_ON}")


def check_not_forgetting(head: Head, name: str) -> None:
    """Raise Refused while rows are being forgotten: between two of its steps the rule's tables do not fit together."""
    if head.forgetting is not None:
        raise Refused(
            f"rule {name}: a forget has not finished: `floodmark forget {name}` with the same --where continues it. If "
            f"the condition is lost, `floodmark reset {name}` starts over"
        )


def condition_digest(ledger: str, where: str) -> str:
    """What a ledger, by its id, keeps of a condition: not its text, which may name a person."""
    return sha(f"{ledger}\n{where.strip()}")


def check_forgettable(head: Head, name: str, condition: str) -> Forgetting | None:
    """The forget that is to be continued, if one has not finished. Raises Refused if rows cannot be forgotten now.

    condition: its digest.
    """
    check_name(head, name)
    check_unsealed(head, name)
    _check_dropped(head, name)
    if head.forgetting is not None:
        if head.forgetting.condition != condition:
            raise Refused(
                f"rule {name}: a forget with another condition has not finished; the ledger keeps only a digest of it. "
                f"Repeat it with the --where of that time. If that is lost, `floodmark reset {name}` starts over"
            )
        return head.forgetting
    undone = describe_undone(head)
    if undone is not None:  # a correction commits rows, and has yet to take the person out of the sinks
        other = f", or `floodmark correct {name} --skip` gives it up" if describe_pending(head) is None else ""
        raise Refused(f"rule {name}: {undone}. {_way_to_finish(head, name)}{other}, then forget")
    return None


def _way_to_finish(head: Head, name: str) -> str:
    if head.failed is not None:
        return f"A check has failed: `floodmark status {name}` says what to do"
    if head.forgetting is not None:
        return f"`floodmark forget {name}` with the same --where finishes it"
    return f"`floodmark run {name}` finishes it"
