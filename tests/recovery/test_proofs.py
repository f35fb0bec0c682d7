"""`floodmark prove` with real kills: proven as it is, and not once something is spoiled before it is compared."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from support.corrected import flow_of
from support.flow import RUNNING, START, STATELESS, Flow, event, rows_of
from support.oracle import ordered, tumbling
from support.postgres import Server, started
from support.roomy import INTERPRETED
from typer.testing import CliRunner, Result

from floodmark.cli.app import app
from floodmark.ledger.home import Home
from floodmark.proving.judge import judging
from floodmark.proving.judge.judging import Judged, Matrix
from floodmark.proving.judge.verdicts import EXIT_CODES
from floodmark.proving.play.played import Played

CHECKOUT = Path(__file__).parents[2]
# 24 rows that become 3 epochs, in each of which a window becomes final; one row is late, one has no event time.
EVENTS = [event(20 * i, "ab"[i % 2], i / 4, i) for i in range(20)]
# In each commit a run is killed and a relay. `make prove` kills a run that corrects, too.
POINTS = ("sink0.after", "relay.sent", *(("backfill.sink.after",) if os.environ.get("FLOODMARK_PROVE") else ()))
ROWS = [*EVENTS[:10], event(20, "a", 0.1, 7), event(None), *EVENTS[10:], event(420, "a"), event(450, "b")]


@dataclass
class Proof:
    """What the command printed, and what it judged."""

    flow: Flow
    told: Result
    played: list[Played] = field(default_factory=list)

    @property
    def facts(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.told.stdout)
        return found


def proved(flow: Flow, *more: str) -> Proof:
    """The command on a rule with the rows above; its scratch folder stays."""
    for at in range(0, len(ROWS), 9):
        flow.arrive(ROWS[at : at + 9])
    flow.write_rule()
    found: list[Played] = []

    def kept(played: Played, *doing: Any) -> Matrix:
        found.append(played)
        return judged(played, *doing)

    judged = judging.judged
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(judging, "judged", kept)
        places = ["--rules", str(flow.root / "rules"), "--home", str(flow.home)]
        call = ["prove", flow.name, *places, "--master", "local[2]", "--json", "--keep", *more]
        told = CliRunner().invoke(app, call)
    return Proof(flow, told, found)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with started(tmp_path_factory.mktemp("postgres")) as found, pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLOODMARK_CONN_SHOP", found.uri)
        yield found


@pytest.fixture(scope="module")
def proof(root: Path, server: Server) -> Proof:
    """Of a rule with a Delta table and PostgreSQL."""
    page = str(root / "proof.html")
    flow = Flow(root, settings={"spark": {"shuffle_partitions": 2, "conf": INTERPRETED}})
    flow.settings["sinks"] = [{"delta": flow.sink(0)}, {"postgres": {"connection": "shop", "table": "totals"}}]
    points = [word for point in POINTS for word in ("--only", point)]
    return proved(flow, *points, "--fault", "killed", "--report", page)


def copy(proof: Proof, name: str) -> Judged:
    """Judged anew."""
    return next(one for one in judging.judged(proof.played[0]).copies if one.name == name)


def test_a_kill_is_survived_and_the_fault_was_seen(proof: Proof) -> None:
    assert proof.told.exit_code == 0, proof.told.output
    facts = proof.facts
    assert (facts["verdict"], facts["restricted"]) == ("proven", True)
    assert facts["faults"]["planned"] == facts["faults"]["fired"] == len(POINTS)
    assert facts["faults"]["processes_signalled"] >= 2, "Python and the JVM at least"
    assert [(one["rows"], one["commits"]) for one in facts["sample"]] == [(len(ROWS), 6)]
    killed = next(one for one in facts["copies"] if one["point"] == "sink0.after")
    assert killed["attempts"] == killed["epochs"] + 1
    sinks = {f"sink {i}" for i in range(2)}
    assert sinks | {"late", "dead", "state events"} <= {check["what"] for check in killed["checks"]}


def test_targets_get_what_the_tables_get(proof: Proof) -> None:
    relayed = next(one for one in proof.facts["copies"] if one["point"] == "relay.sent")
    checks = {check["what"]: check["found"] for check in relayed["checks"]}
    (said,) = {checks[f"sink {i}"] for i in range(2)}
    assert said.endswith(" rows, equal to the undisturbed run")
    assert not said.startswith("0 ")


@pytest.mark.prove
def test_a_correction_is_killed_and_its_results_are_those_of_batch(proof: Proof) -> None:
    [rewritten] = proof.facts["rewrites"]
    assert rewritten["left"] > rewritten["came"] > 0
    checks = {one["name"]: {check["what"]: check["found"] for check in one["checks"]} for one in proof.facts["copies"]}
    whole, killed = checks["Corrected"], checks["Killed_backfill_sink_after"]
    assert whole["the rewrite was corrected"].startswith(f"1 corrections of {rewritten['left']} rows that left")
    for i in range(2):
        assert whole[f"sink {i}, by batch"].endswith(" rows, equal to plain batch over the rows folded")
        assert killed[f"sink {i}"].endswith(" rows, equal to the correction without a fault")
    what = "corrections (rows that left and came, what was recomputed)"
    assert killed[what] == "1 rows, equal to the correction without a fault"
    found = [rows_of(proof.played[0].scratch.sink(copy, 0)) for copy in ("Undisturbed", "Corrected")]
    assert ordered(tuple(row.values()) for row in found[0]) != ordered(tuple(row.values()) for row in found[1])


def test_the_undisturbed_run_is_right(proof: Proof) -> None:
    """By plain Python: what all else is compared with must not be wrong itself."""
    last = START + timedelta(seconds=450 - 30)
    expected = tumbling([*EVENTS, *ROWS[-2:]], last)
    found = rows_of(proof.played[0].scratch.sink("Undisturbed", 0))
    assert ordered(tuple(row.values()) for row in found) == expected


def test_the_rules_own_place_is_left_alone(proof: Proof, server: Server) -> None:
    assert not Path(Home(proof.flow.home, proof.flow.name).path).exists()
    assert not Path(proof.flow.sink(0)).exists()
    assert server.ask("SELECT to_regclass('public.totals')") == [(None,)]


def test_the_page_is_there(proof: Proof) -> None:
    text = (proof.flow.root / "proof.html").read_text()
    assert 'class="verdict proven">PROVEN' in text
    assert "sink0.after" in text


def doubled(sink: str) -> None:
    one = QueryBuilder().register("t", DeltaTable(sink)).execute("SELECT * FROM t LIMIT 1").read_all()
    write_deltalake(sink, one, mode="append")


def lost(sink: str) -> None:
    DeltaTable(sink).delete("k = 'a'")


def edited(sink: str) -> None:
    DeltaTable(sink).update({"total": "total + 0.001"}, predicate="k = 'a'")


KILLED, CORRECTING = "Killed_sink0_after", "Killed_backfill_sink_after"


@pytest.mark.parametrize(
    ("spoil", "name", "found_in"),
    [
        (doubled, KILLED, [KILLED]),
        (lost, KILLED, [KILLED]),
        (edited, KILLED, [KILLED]),
        pytest.param(edited, CORRECTING, [CORRECTING], marks=pytest.mark.prove),
        pytest.param(edited, "Corrected", ["Corrected", CORRECTING], marks=pytest.mark.prove),
    ],
)
def test_a_spoiled_sink_breaks_the_proof(
    proof: Proof, spoil: Callable[[str], None], name: str, found_in: list[str]
) -> None:
    sink = Path(proof.played[0].scratch.sink(name, 0))
    shutil.copytree(sink, sink.with_suffix(".kept"))
    try:
        spoil(str(sink))
        found = judging.judged(proof.played[0])
    finally:
        shutil.rmtree(sink)
        sink.with_suffix(".kept").rename(sink)
    assert found.verdict == "broken"
    broken = [one for one in found.copies if one.verdict == "broken"]
    assert [one.name for one in broken] == found_in
    for one in broken:
        assert any(check.what.startswith("sink 0") for check in one.checks if check.verdict == "broken")
    assert EXIT_CODES[found.verdict] == 3
    assert copy(proof, name).verdict == "proven"


@pytest.mark.parametrize(
    "spoil",
    [
        "INSERT INTO {table} SELECT * FROM {table} LIMIT 1",
        "UPDATE floodmark_prove_{word}.floodmark_position SET epoch = 1 WHERE target = 'floodmark_prove_{word}.{copy}'",
    ],
    ids=["doubled", "its position moved"],
)
def test_a_spoiled_target_breaks_the_proof(proof: Proof, server: Server, spoil: str) -> None:
    name, word = "Killed_relay_sent", proof.played[0].scratch.word
    copied = f"{name}_1"
    table = f'floodmark_prove_{word}."{copied}"'
    positions = f"floodmark_prove_{word}.floodmark_position"
    server.run(f"CREATE TABLE kept AS TABLE {table}", f"CREATE TABLE positions AS TABLE {positions}")
    try:
        server.run(spoil.format(table=table, word=word, copy=copied))
        found = judging.judged(proof.played[0])
    finally:
        server.run(
            f"TRUNCATE {table}", f"INSERT INTO {table} TABLE kept", "DROP TABLE kept",
            f"TRUNCATE {positions}", f"INSERT INTO {positions} TABLE positions", "DROP TABLE positions",
        )  # fmt: skip
    assert [one.name for one in found.copies if one.verdict == "broken"] == [name]
    assert copy(proof, name).verdict == "proven"


def test_a_fault_that_was_not_seen_is_no_proof(proof: Proof) -> None:
    played = proof.played[0]
    seen = dict(played.fired)
    try:
        played.fired["Killed_sink0_after"] = 0
        assert judging.judged(played).verdict == "unfinished"
    finally:
        played.fired = seen
    assert judging.judged(played).verdict == "proven"


RULES: dict[str, dict[str, Any]] = {
    "windows": {},
    "windows_qos1": {"settings": {"qos": 1}},
    "windows_qos0": {"settings": {"qos": 0}},
    "stateless_qos0": {"sql": STATELESS, "stream": {"lateness": None}, "settings": {"qos": 0}},
    "a_class": {"process": "totals:Totals"},
}


@pytest.mark.prove
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", RULES)
def test_the_whole_matrix(place: Path, name: str) -> None:
    proof = proved(Flow(place, **RULES[name]))
    facts = proof.facts
    other = [one for one in facts["copies"] if one["verdict"] != "proven"]
    assert not {one["verdict"] for one in other} & {"broken", "unfinished"}, json.dumps(other, indent=1)
    assert facts["faults"]["planned"] == facts["faults"]["fired"] >= (50 if proof.flow.rule().qos == 0 else 90)
    assert not facts["restricted"]
    if name != "a_class":  # its replays with late rows have no answer in batch
        assert (facts["verdict"], proof.told.exit_code) == ("proven", 0), json.dumps(other, indent=1)


@pytest.mark.prove
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("form", ["totals", "newest row", "single rows", "sessions", "first row", "over"])
def test_corrections_of_each_scope_are_killed(place: Path, form: str) -> None:
    facts = proved(flow_of(place, form, sinks=1), "--only", "backfill.sink.after", "--fault", "killed").facts
    other = [one for one in facts["copies"] if one["verdict"] != "proven"]
    assert facts["verdict"] == "proven", json.dumps(other, indent=1)
    assert facts["faults"]["planned"] == facts["faults"]["fired"] == 1, facts["skipped"]
    [corrected] = [one for one in facts["copies"] if one["fault"] == "corrected"]
    assert "the rewrite was corrected" in {check["what"] for check in corrected["checks"]}


@pytest.mark.prove
def test_a_total_that_takes_its_row_away_is_no_fault(place: Path) -> None:
    flow = Flow(place, sql=RUNNING, sinks=1)
    sink = {"delta": flow.sink(0), "key": ["k"], "delete": "k = 'A'"}
    flow.settings |= {"unbounded": True, "sinks": [sink]}
    copies = proved(flow, "--fault", "replayed").facts["copies"]
    assert {one["verdict"] for one in copies} == {"proven"}, copies


@pytest.mark.prove
def test_a_sink_that_holds_nothing_proves_nothing(place: Path) -> None:
    flow = Flow(place)
    flow.settings["sinks"] = [{"delta": flow.sink(0)}, {"delta": flow.sink(1), "where": "k = 'nobody'"}]
    facts = proved(flow, "--only", "sink0.after", "--fault", "killed").facts
    [undisturbed] = [one for one in facts["copies"] if one["fault"] == "undisturbed"]
    assert facts["verdict"] == "unknown"
    assert [one["what"] for one in undisturbed["checks"] if one["verdict"] == "unknown"] == ["sink 1"]
