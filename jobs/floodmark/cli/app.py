"""The command `floodmark`: registers all commands, in the order of `--help`."""

from __future__ import annotations

from inspect import signature
from typing import Annotated

import typer

from floodmark import __version__
from floodmark.cli.commands import (
    abandon,
    adopt,
    airflow,
    audit,
    backfill,
    cases,
    correct,
    doctor,
    drop,
    epochs,
    forget,
    init,
    jars,
    maintain,
    plan,
    preview,
    prove,
    recheck,
    relay,
    rename,
    replay,
    reset,
    retire,
    rows,
    run,
    sql,
    status,
    undelivered,
    validate,
)
from floodmark.cli.shared.boundary import Commands, DeadCommands
from floodmark.cli.shared.environment import in_environment
from floodmark.cli.shared.options import spread

app = typer.Typer(
    name="floodmark",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Runs stateful SQL over Delta tables incrementally, with exactly-once results.\n\n"
    "A first rule: `floodmark init`, then `floodmark validate`, `floodmark preview NAME`, `floodmark run NAME`.\n\n"
    "Exit codes: 0 done · 1 failed, a retry may help · 2 refused · 3 failed, a retry cannot help.",
)

WRITING, RUNNING, LOOKING, ENDING = "Write a rule", "Run it", "See what it did", "Rename, retire or remove it"
INSTALLING = "Install it"

app.command("init", rich_help_panel=WRITING)(init.init)
app.command("validate", rich_help_panel=WRITING)(validate.validate)
app.command("plan", rich_help_panel=WRITING)(plan.plan)
app.command("preview", rich_help_panel=WRITING)(preview.preview)
app.command("test", rich_help_panel=WRITING)(cases.cases)
app.command("run", rich_help_panel=RUNNING)(run.run)
app.command("relay", rich_help_panel=RUNNING)(relay.relay)
app.command("backfill", rich_help_panel=RUNNING)(backfill.backfill)
app.command("correct", rich_help_panel=RUNNING)(correct.correct)
app.command("recheck", rich_help_panel=RUNNING)(recheck.recheck)
app.command("abandon", rich_help_panel=RUNNING)(abandon.abandon)
app.command("reset", rich_help_panel=RUNNING)(reset.reset)
app.command("maintain", rich_help_panel=RUNNING)(maintain.maintain)
app.command("forget", rich_help_panel=RUNNING)(forget.forget)
app.command("list", rich_help_panel=LOOKING)(status.list_rules)
app.command("status", rich_help_panel=LOOKING)(status.status)
app.command("epochs", rich_help_panel=LOOKING)(epochs.epochs)
app.command("audit", rich_help_panel=LOOKING)(audit.audit)
app.command("prove", rich_help_panel=LOOKING)(prove.prove)
app.command("sql", rich_help_panel=LOOKING)(sql.sql)
app.command("state", rich_help_panel=LOOKING)(rows.state)
app.command("late", rich_help_panel=LOOKING)(rows.late)
app.command("doctor", rich_help_panel=LOOKING)(doctor.doctor)
app.command("adopt", rich_help_panel=ENDING)(adopt.adopt)
app.command("rename", rich_help_panel=ENDING)(rename.rename)
app.command("retire", rich_help_panel=ENDING)(retire.retire)
app.command("drop", rich_help_panel=ENDING)(drop.drop)

app.command("jars", rich_help_panel=INSTALLING)(jars.jars)

under_airflow = typer.Typer(no_args_is_help=True, help="Floodmark in an existing Airflow.")
under_airflow.command("init")(airflow.init)
under_airflow.command("remove")(airflow.remove)
app.add_typer(under_airflow, name="airflow", rich_help_panel=INSTALLING)

dead = typer.Typer(cls=DeadCommands, no_args_is_help=True, help="Rows that a rule could not process.")
dead.command("list")(rows.dead)
dead.command("replay")(replay.replay)
app.add_typer(dead, name="dead", rich_help_panel=LOOKING)

refused = typer.Typer(cls=DeadCommands, no_args_is_help=True, help="Rows that a target refused.")
refused.command("list")(undelivered.listed)
refused.command("replay")(undelivered.replay)
app.add_typer(refused, name="undelivered", rich_help_panel=LOOKING)

for commands in (app, dead, refused, under_airflow):
    for one in commands.registered_commands:
        one.callback = one.callback and spread(one.callback)
        if one.callback is not None and "rules" in signature(one.callback).parameters:
            one.callback = in_environment(one.callback)


def _version(asked: bool) -> None:
    if asked:
        from floodmark.core.protocol.records.rows import FORMAT

        typer.echo(f"floodmark {__version__} (ledger format {FORMAT})")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Show the version and the format of ledgers, and exit."
        ),
    ] = False,
) -> None:
    """The callback of the application, whose help text is above."""
