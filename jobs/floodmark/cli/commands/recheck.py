"""`floodmark recheck`: have what failed a check tried again, once its cause is mended."""

from __future__ import annotations

from floodmark.cli.commands.run import made_up_id
from floodmark.cli.shared import asking, options, output
from floodmark.core.protocol.crashpoints import reach


def recheck(
    name: options.RuleName,
    yes: asking.Yes = False,
    dry_run: asking.DryRun = False,
    run_id: options.RunId = None,
    rules: options.RulesDir = options.RULES,
    home: options.HomeDir = options.HOME,
    as_json: options.AsJson = False,
) -> None:
    """Let runs try the open epoch, or the open backfill, of a rule again after it failed a check.

    A run that finds in a table something else than it computed stops, and the ledger remembers it: no later run goes
    on before somebody has decided. This is the decision for a cause that was mended. The next run checks all of it
    again; nothing is taken on trust.

    Example: `floodmark recheck departure_delays`
    """
    from floodmark.core.lifecycle.life import rechecking

    place, _, head = asking.begun_home(home.absolute(), name)
    facts = {"rule": name, "done": not dry_run, "changed": rechecking(head, name) is not None, "failed": head.failed}
    if head.failed is None:
        return output.document(facts) if as_json else output.say(f"{name}: no check has failed")
    if not as_json:
        output.say(head.failed)
    if dry_run:
        return output.document(facts) if as_json else None
    asking.ask(yes, "recheck asks before runs try again what failed a check")
    with asking.held_ledger(place, run_id or made_up_id()) as ledger:
        assert ledger.head is not None
        due = rechecking(ledger.head, name)
        if due is not None:
            reach(name, "recheck.before")
            ledger.live(due)
            reach(name, "recheck.after")
    done = f"{name}: the next run checks it again; `floodmark run {name}`"
    return output.document(facts) if as_json else output.say(done)
