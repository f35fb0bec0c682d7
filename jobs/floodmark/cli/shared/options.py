"""Options that several commands have in common, each declared once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from floodmark.cli.shared.completing import rule_names

RULES = Path("rules")
HOME = Path("home")
MASTER = "local[*]"

RulesDir: TypeAlias = Annotated[
    Path, typer.Option("--rules", envvar="FLOODMARK_RULES", help="Folder of the rule files.", show_default="rules")
]
HomeDir: TypeAlias = Annotated[
    Path,
    typer.Option("--home", envvar="FLOODMARK_HOME", help="Where ledgers and state are kept.", show_default="./home"),
]
Master: TypeAlias = Annotated[
    str, typer.Option("--master", envvar="FLOODMARK_MASTER", help="The Spark master.", show_default="local[*]")
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print one JSON document instead.")]
RunId: TypeAlias = Annotated[
    str | None, typer.Option("--run-id", help="Name of this run in the ledger.", show_default="made up")
]
RuleName: TypeAlias = Annotated[
    str, typer.Argument(metavar="RULE", help="Name of a rule.", show_default=False, autocompletion=rule_names)
]
RuleNames: TypeAlias = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[RULE...]", help="Names of rules; none: all.", show_default=False, autocompletion=rule_names
    ),
]
