"""`floodmark recheck`: let runs retry an epoch that failed a check, once its cause is fixed."""

from __future__ import annotations

from floodmark.cli.shared import options, output, rulechange
from floodmark.core.protocol.crashpoints import reach


def recheck(
    name: options.RuleName,
    *,
    change: rulechange.Change,
) -> None:
    """Let runs retry the open epoch, or open backfill, of a rule after it failed a check.

    If a table doesn't hold what a run computed, the run stops and the ledger records the failed check. Later runs are
    refused until somebody decides what to do. Use this command once the cause is fixed. The next run repeats all
    checks.

    Example: `floodmark recheck departure_delays`
    """
    from floodmark.core.lifecycle.life import rechecking

    place, _, head = rulechange.begun_home(change.root, name)
    facts = {
        "rule": name,
        "done": not change.dry_run,
        "changed": rechecking(head, name) is not None,
        "failed": head.failed,
    }
    if head.failed is None:
        return output.print_json(facts) if change.as_json else output.say(f"{name}: no check has failed")
    if not change.as_json:
        output.say(head.failed)
    if change.dry_run:
        return output.print_json(facts) if change.as_json else None
    rulechange.confirm(change.yes, "recheck asks for confirmation before runs retry what failed a check")
    with rulechange.held_ledger(place, change.run) as ledger:
        due = rechecking(ledger.begun, name)
        if due is not None:
            reach(name, "recheck.before")
            ledger.live(due)
            reach(name, "recheck.after")
    done = f"{name}: the next run repeats the checks: `floodmark run {name}`"
    return output.print_json(facts) if change.as_json else output.say(done)
