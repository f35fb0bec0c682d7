"""Homes that older code has written, one for each format of the ledger: what they hold, and how they are made.

tests/homes/README.md says how to make one again, by `python -m support.olderhomes FORMAT`.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from tempfile import TemporaryDirectory

from floodmark.proving.play.processes import started, wait_until
from support.flow import Flow, event

CHECKOUT = Path(__file__).parents[2]
MADE_AT = Path("/srv/floodmark")  # the ledgers call their sinks by addresses below it
# The last commit on the main line whose code wrote the format; of format 8, the last one before the code got its rooms.
COMMITS = {
    1: "8936669078da665620a69bebd03e531f725464cc",
    2: "7eb66073c568ec46d2e45c28b7c79035cfa983e0",
    3: "7026d83cf01ebb5dd1110a7d75f7efed7d343591",
    4: "02c38829e149fedb9552f60b83bfc0116ab5917d",
    5: "68550701255fdbd8aa333984117f497971602ddb",
    6: "f9a931c7ae58fe83272543669af910174990303c",
    7: "9da22daf53394a098ae8010ba630ef7f22abef57",
    8: "893a1fa69b9090a95dd30942865ac118de2fefb3",
    9: "e0cf689bc81b7d53c9c56f87671de2ed3513d86d",
    10: "654d340438d16e5864a6e5b0bd56e32a830ee0cb",
    11: "8f13c81897243c4f0c6cd698f3762cfab56ea61d",
    12: "9d60ab32ac6e01b5547a3ec9bf6cbc6cda750128",
}
# What that code has read, an epoch each. The last is open: it makes windows final, and has a late and a dead row.
PORTIONS = [
    [event(0), event(10, "b", 2.5), event(50, n=4), event(70)],
    [event(75, "b"), event(80, v=None, n=9), event(130)],
    [event(135, "b"), event(140, n=None), event(20), event(None), event(250, "b", 0.25)],
]
SINKS = ("appended_done", "newest_done", "appended_due", "newest_due")  # done: has the open epoch's commit
HELD = ("late.after", "dead.after", "state.after", "sink0.after", "sink1.after", "sink2.before", "sink3.before")
LIMIT = 300.0  # seconds until a run is held


def packed(form: int) -> Path:
    """The archive of a format's home and lake."""
    return CHECKOUT / "tests" / "homes" / f"format-{form}.tar.gz"


def unpack(form: int, to: Path) -> Path:
    """Put home and lake of a format into a folder; that folder."""
    with tarfile.open(packed(form)) as archive:
        archive.extractall(to, filter="data")
    return to


def flow_at(root: Path) -> Flow:
    """The rule, with its home and lake there. Two sinks get its windows appended, two have a key."""
    sinks = [{"delta": str(root / "lake" / name)} for name in SINKS]
    keyed = [{**sink, "key": ["k"], "newest": "start"} if "newest" in sink["delta"] else sink for sink in sinks]
    return Flow(root, settings={"sinks": keyed})


def make(form: int) -> None:
    """Have the format's code run the rule until its last epoch is open; pack what a kill leaves."""
    MADE_AT.mkdir(parents=True)
    try:
        with TemporaryDirectory() as checkout:
            _check_out(COMMITS[form], checkout)
            _play(flow_at(MADE_AT), checkout, MADE_AT / "marks")
        _pack(packed(form))
    finally:
        shutil.rmtree(MADE_AT)


def _check_out(commit: str, to: str) -> None:
    subprocess.run(["git", "clone", "--quiet", "--no-checkout", CHECKOUT, to], check=True)
    subprocess.run(["git", "-C", to, "checkout", "--quiet", commit], check=True)


def _play(flow: Flow, checkout: str, marks: Path) -> None:
    marks.mkdir()
    for portion in PORTIONS[:-1]:
        flow.arrive(portion)
        with _run(flow, checkout, {}) as process:
            assert process.wait() == 0, (flow.root / "log.txt").read_text()
    flow.arrive(PORTIONS[-1])
    points = ",".join(f"{flow.name}:{point}" for point in HELD)
    with _run(flow, checkout, {"FLOODMARK_CRASH_AT": points, "FLOODMARK_CRASH_MARKS": str(marks)}) as process:
        assert wait_until(lambda: len(list(marks.iterdir())) == len(HELD), process, LIMIT)


def _run(flow: Flow, checkout: str, env: Mapping[str, str]) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """A run by the code of a checkout; whatever of it is left at the end is killed."""
    command = [sys.executable, "-c", "from floodmark.cli import main; main()", "run", flow.name, "--run-id", "older"]
    places = ["--rules", str(flow.write_rule().parent), "--home", str(flow.home)]
    own = {"PYTHONPATH": f"{checkout}/jobs", "FLOODMARK_JARS": str(CHECKOUT / ".cache" / "jars"), "TZ": "UTC"}
    return started([*command, *places], {**own, **env}, flow.root / "log.txt")


def _pack(archive: Path) -> None:
    with tarfile.open(archive, "w:gz") as made:
        for folder in ("home", "lake"):
            made.add(MADE_AT / folder, folder, filter=_nobody)


def _nobody(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """A member of the archive without who made it: `lock.owner` names the machine."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return None if member.name.endswith("/lock.owner") else member


if __name__ == "__main__":
    make(int(sys.argv[1]))
