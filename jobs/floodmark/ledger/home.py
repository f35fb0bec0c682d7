"""Locates a rule's own tables, and checks whether the store can keep them."""

from __future__ import annotations

import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from floodmark.core.protocol.records.chain import RESTORE
from floodmark.core.text.addresses import decoded, strange_path
from floodmark.core.text.files import file_instead_of_folder
from floodmark.errors import FloodmarkError, HomeUnfit, LedgerBroken, Refused, RunFailed
from floodmark.ledger.delta.storefaults import cannot_take, make_room, passing
from floodmark.ledger.holder import CORRECTING

if TYPE_CHECKING:
    from floodmark.core.rules.model import Sink

TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm", "/run")  # noqa: S108 - refused, not used
FORGETFUL = ("tmpfs", "ramfs")


@dataclass(frozen=True)
class Home:
    """HOME/RULE: ledger, state, late and dead rows, what sources remember, and the run's checkpoint directory."""

    root: Path
    rule: str

    def __post_init__(self) -> None:
        """Raise Refused for a name that would lead elsewhere: it may come from a command line."""
        if not re.fullmatch(r"\w+", self.rule, re.ASCII):
            raise Refused(f"expected the name of a rule, of letters, digits and _, found {self.rule!r}")

    @property
    def path(self) -> Path:
        return self.root / self.rule

    @property
    def ledger(self) -> str:
        return str(self.path / "ledger")

    @property
    def lock(self) -> Path:
        return self.path / "lock"

    @property
    def renamed(self) -> Path:
        """Beside the homes: what a rule that had this name is named now."""
        return self.root / ".renamed" / f"{self.rule}.json"

    @property
    def correcting(self) -> Path:
        """The lock of the run that computes a correction. It goes on while other runs hold the rule's lock."""
        return self.path / CORRECTING

    @property
    def late(self) -> str:
        return str(self.path / "late")

    @property
    def dead(self) -> str:
        return str(self.path / "dead")

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoint"

    def source(self, stream: str) -> Path:
        """The folder for what the stream's source has to remember."""
        return self.path / "sources" / stream

    def outbox(self, sink: Sink) -> Path | None:
        """The outbox of a target; None of any other sink."""
        return None if sink.outbox is None else self.path / sink.outbox

    @property
    def outboxes(self) -> list[Path]:
        """The outboxes of all targets, also those that the rule no longer has."""
        return sorted(one for one in self.path.glob("outbox/*") if one.is_dir())

    def landing(self, stream: str) -> str:
        """The table to which the stream's rows are copied first, if it has a landing."""
        return str(self.path / "landing" / stream)

    def state(self, generation: int, name: str) -> str:
        return str(self.path / "state" / f"g{generation}" / name)


def check_not_lost(home: Home) -> None:
    """For a home in which no ledger is found: raise LedgerBroken if the rule has written its other tables.

    A rule that begins makes its ledger before all of them. Without it, a run would deliver everything again.
    """
    if any((home.path / name).exists() for name in ("late", "dead", "state", "landing")):
        raise LedgerBroken(f"the ledger {home.ledger} is gone, but the rule's other tables exist; {RESTORE}")


def check_home(root: Path, qos: int) -> None:
    """Refuse a home that loses files at a restart, or a store on which two writers can both create one file.

    Writes and removes one probe file. Raises HomeUnfit; RunFailed if it accepts no writes now.
    """
    _refuse_strange(root)
    _refuse_file(root)
    if qos > 0:
        _refuse_forgetful(root.resolve())
    _probe(root)


def _refuse_strange(root: Path) -> None:
    """Refuse paths with characters that Spark's own readers, which also read state, treat as patterns."""
    why = strange_path(str(root.absolute()), but="[]{}*?|^") or decoded(str(root.resolve()))
    if why is not None:
        raise HomeUnfit(f"the home {root} cannot be used: expected a path {why}. Name another home with --home")


def _refuse_file(root: Path) -> None:
    file = file_instead_of_folder(root.absolute())
    if file is not None:
        raise HomeUnfit(
            f"the home {root} cannot be used: expected a folder at {file}, found a file. Name another home with --home"
        )


def _refuse_forgetful(root: Path) -> None:
    places = {Path(place) for place in TEMPORARY} | {Path(tempfile.gettempdir()).resolve()}
    inside = next((place for place in places if root.is_relative_to(place)), None)
    kind = _file_system(root)
    if inside is None and kind not in FORGETFUL:
        return
    found = f"it is in the temporary directory {inside}" if inside else f"its file system is {kind}"
    raise HomeUnfit(
        f"the home {root} cannot persist: {found}, and the ledger of a rule with qos above 0 must survive a restart "
        "of the machine. Name a persistent directory with --home or FLOODMARK_HOME, or declare `qos: 0`"
    )


def _file_system(path: Path) -> str:
    """Type of the file system that holds `path`; '' if the system does not report it."""
    mounts = Path("/proc/mounts")
    if not mounts.exists():
        return ""
    fields = [line.split() for line in mounts.read_text().splitlines()]
    holding = [(len(point), kind) for _, point, kind, *_ in fields if path.is_relative_to(point)]
    return max(holding, default=(0, ""))[1]


def _probe(root: Path) -> None:
    """Create one name twice by hard link, the way the ledger commits; the second try must fail."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        source, name = root / f".probe-{uuid4().hex}", root / f".probe-{uuid4().hex}"
        source.touch()
        try:
            os.link(source, name)
            _must_not_link_again(source, name)
        finally:
            source.unlink(missing_ok=True)
            name.unlink(missing_ok=True)
    except OSError as fault:
        raise unusable(root, fault) from fault


def unusable(home: Path, fault: OSError) -> FloodmarkError:
    """The error for a home, or a rule's folder in it, in which a file cannot be opened or written."""
    why = cannot_take(str(fault.strerror))
    if why is not None:
        return RunFailed(f"the home {home} cannot be written: {why}; {make_room(why)}, then retry")
    what = f"{fault.strerror}{f' ({fault.filename})' if fault.filename else ''}"
    if passing(str(fault.strerror)) and not isinstance(fault, PermissionError):
        return RunFailed(f"the home {home} cannot be used now: {what}; fix the disk or the store, then retry")
    way = "; run as the user that owns it, or let this one write there" if isinstance(fault, PermissionError) else ""
    return HomeUnfit(f"the home {home} cannot be used: {what}{way}")


def _must_not_link_again(source: Path, name: Path) -> None:
    try:
        os.link(source, name)
    except FileExistsError:
        return
    raise HomeUnfit(
        f"the store of {name.parent} lets two writers create the same file, so the ledger would not be safe there"
    )
