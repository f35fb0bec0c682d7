"""What commands that change a whole rule share: options, the rule's home, its readers (dependencies), confirmation."""

from __future__ import annotations

import difflib
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from floodmark.cli.shared import options, output
from floodmark.errors import Refused

if TYPE_CHECKING:
    from floodmark.core.protocol.records.head import Head
    from floodmark.core.rules.rule import Rule
    from floodmark.ledger.home import Home
    from floodmark.ledger.ledger import Ledger, LedgerReader
    from floodmark.views.rules.downstream import Reader

Yes: TypeAlias = Annotated[bool, typer.Option("--yes", help="Don't ask for confirmation.")]
Effect: TypeAlias = "Callable[[Rule, str], str]"  # on a rule that reads the sink, by one of its streams, for people
DryRun: TypeAlias = Annotated[bool, typer.Option("--dry-run", help="Show what would happen, and exit.")]


@dataclass(frozen=True, kw_only=True)
class Change:
    """The options of every command that changes a whole rule (`options.spread` gives them to Typer)."""

    yes: Yes = False
    dry_run: DryRun = False
    run_id: options.RunId = None
    rules: options.RulesDir = options.RULES
    home: options.HomeDir = options.HOME
    as_json: options.AsJson = False

    @property
    def root(self) -> Path:
        return self.home.absolute()

    @property
    def run(self) -> str:
        """The run's name in the ledger."""
        return self.run_id or generated_run_id()


def generated_run_id() -> str:
    """A generated name for a run without `--run-id`."""
    return f"cli-{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"


def confirm(yes: bool, what: str) -> None:
    """Ask for confirmation. Raises Refused without a terminal. `what`: the command, and what it is about to do."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise Refused(f"{what}, and there is no terminal: pass --yes, or check with --dry-run")
    typer.confirm("Continue?", abort=True, err=True)


def begun_home(root: Path, name: str) -> tuple[Home, LedgerReader, Head]:
    """The home of a rule that has run, with or without a rule file. Raises Refused."""
    from floodmark.ledger.home import Home
    from floodmark.ledger.ledger import LedgerReader

    home = Home(root, name)
    ledger = LedgerReader.load(home.ledger)
    if ledger is None:
        raise _no_home(root, name)
    if ledger.head is None:
        raise Refused(f"rule {name} has a home at {home.path}, but has not run yet: run it, or remove that folder")
    return home, ledger, ledger.head


def _no_home(root: Path, name: str) -> Refused:
    from floodmark.views.homes import homes

    there = homes(root)
    near = difflib.get_close_matches(name, there, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return Refused(f"no home of rule {name!r} in {root}: {hint}homes there: {', '.join(there) or 'none'}")


@contextmanager
def held_ledger(home: Home, run: str, whole: bool = False) -> Iterator[Ledger]:
    """Hold the rule's lock, so that no run works on it meanwhile, and open its ledger. Raises Busy.

    whole: the home moves or goes, so that no relay may be at work in it either.
    """
    from floodmark.ledger.ledger import Ledger
    from floodmark.ledger.locking import held, relays_held

    with held(home.lock, run), relays_held(home, run) if whole else nullcontext():
        yield Ledger.open(home.ledger, run)


def good_rules(folder: Path) -> list[Rule]:
    """The valid rules of the folder; none if there is no folder."""
    from floodmark.cli.shared.selection import load_folder

    return list(load_folder(folder).good.values()) if folder.is_dir() else []


@dataclass(frozen=True)
class Downstream:
    """The rules that read a rule's sinks (`direct`), and those that read these rules' sinks, and so on (`further`).

    rules: by name.
    """

    direct: list[Reader] = field(default_factory=list)
    further: list[Reader] = field(default_factory=list)
    rules: Mapping[str, Rule] = field(default_factory=dict)

    @property
    def folded(self) -> bool:
        """Whether another rule folds the rows, which can't be undone."""
        return any(reader.kind == "stream" for reader in self.direct)

    def describe(self, stream: str | Effect, lookup: str, further: str) -> None:
        """Print the effect on each reader: on stream readers, on lookups, and on readers of these rules."""
        for reader in self.direct:
            output.say(f"  {reader.text()}: {self._read(reader, stream) if reader.kind == 'stream' else lookup}")
        for reader in self.further:
            output.say(f"  {reader.text()}: {further}")

    def _read(self, reader: Reader, effect: str | Effect) -> str:
        return effect if isinstance(effect, str) else effect(self.rules[reader.rule], reader.name)

    def facts(self) -> list[dict[str, Any]]:
        return [asdict(reader) for reader in (*self.direct, *self.further)]


def left_behind(head: Head, place: Home, reader: LedgerReader) -> dict[str, str]:
    """What each target of the rule has not got, for people. An outbox that cannot be read stops no drop."""
    from floodmark.connectors.relay.backlogs import undelivered
    from floodmark.core.rules.kinds import targets

    try:
        found = {one.target: one.left_behind(place.rule) for one in undelivered(head.rule, place, reader)}
    except Exception as fault:  # a rule may be dropped because its tables are damaged
        why = str(fault).partition("\n")[0]
        return {one.label: f"nobody knows what target {one.label} has not got: {why}" for one in targets(head.rule)}
    return {target: said for target, said in found.items() if said}


def downstream(sinks: Sequence[str], folder: Path, name: str) -> Downstream:
    """The other rules of the folder that depend on the sinks."""
    from floodmark.views.rules.downstream import further, readers, readers_of

    rules = good_rules(folder)
    direct = readers_of(sinks, readers(rules), name)
    return Downstream(direct, further(direct, rules, name), {rule.rule: rule for rule in rules})


def sinks_of(head: Head) -> list[str]:
    """The locations of the Delta sinks of the rule's newest generation."""
    from floodmark.core.protocol.places import places_of

    return list(places_of(head).values())
