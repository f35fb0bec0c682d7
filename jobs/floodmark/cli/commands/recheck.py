"""`floodmark recheck`: have what failed a check tried again, once its cause is mended."""

from __future__ import annotations

from floodmark.cli.shared import asking, options, output
from floodmark.core.protocol.crashpoints import reach


def recheck(
    name: options.RuleName,
    *,
    change: asking.Change,
) -> None:
    """Let runs try the open epoch, or the open backfill, of a rule again after it failed a check.

    A run that finds in a table something else than it computed stops, and the ledger remembers it: no later run goes
    on before somebody has decided. This is the decision for a cause that was mended. The next run checks all of it
    again; nothing is taken on trust.

    Example: `floodmark recheck departure_delays`
    """
    from floodmark.core.lifecycle.life import rechecking

    place, _, head = asking.begun_home(change.root, name)
    facts = {
        "rule": name,
        "done": not change.dry_run,
        "changed": rechecking(head, name) is not None,
        "failed": head.failed,
    }
    if head.failed is None:
        return output.document(facts) if change.as_json else output.say(f"{name}: no check has failed")
    if not change.as_json:
        output.say(head.failed)
    if change.dry_run:
        return output.document(facts) if change.as_json else None
    asking.ask(change.yes, "recheck asks before runs try again what failed a check")
    with asking.held_ledger(place, change.run) as ledger:
        assert ledger.head is not None
        due = rechecking(ledger.head, name)
        if due is not None:
            reach(name, "recheck.before")
            ledger.live(due)
            reach(name, "recheck.after")
    done = f"{name}: the next run checks it again; `floodmark run {name}`"
    return output.document(facts) if change.as_json else output.say(done)
