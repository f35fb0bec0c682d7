"""Properties that a sink can have, and those that it cannot: all that Delta knows, in any case of letters."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from deltalake import DeltaTable
from support.flow import Flow
from support.lives import lived

from floodmark.connectors.preflight import check_tables
from floodmark.core.rules.sinks.tableproperties import (
    FAMILIES,
    NEVER,
    REFUSED,
    STATISTICS,
    WORKING,
    forgetful,
    lacks_statistics,
    unfit_property,
)
from floodmark.errors import Refused, RuleInvalid

OTHERS = [f"{start}x" for start in FAMILIES]


def _flow(root: Path, **properties: str) -> Flow:
    flow = Flow(root)
    flow.settings["sinks"] = [{"delta": flow.sink(), "properties": properties}]
    return flow


@pytest.mark.parametrize("name", [*REFUSED, *OTHERS, "delta.feature.catalogManaged", "delta.constraints.positive"])
def test_what_a_step_of_the_protocol_could_not_live_with_is_refused_with_its_line(tmp_path: Path, name: str) -> None:
    for spelled in (name, name.lower(), name.upper()):
        flow = _flow(tmp_path, **{spelled: "interval 9 days"})
        place = flow.write_rule()
        line = next(i for i, text in enumerate(place.read_text().splitlines(), 1) if spelled in text)
        with pytest.raises(RuleInvalid, match=r"expected no .* of a sink: ") as refused:
            flow.rule()
        assert f"{place.name}:{line}:" in str(refused.value) and spelled in str(refused.value)


def test_what_works_is_taken(tmp_path: Path) -> None:
    flow = _flow(tmp_path, **dict.fromkeys(WORKING, "interval 9 days"), team="a")
    assert set(flow.rule().sinks[0].properties) == {*WORKING, "team"}
    assert not {name.lower() for name in WORKING} & {name.lower() for name in REFUSED}


@pytest.mark.parametrize(
    ("value", "works"),
    [
        ("interval 1 day", True),
        ("interval 24 hours", True),
        ("INTERVAL 1 Day 12 Hours", True),
        ("interval 2 weeks", True),
        ("interval 23 hours 59 minutes", False),
        ("interval 1 hour", False),
        ("interval 0 days", False),
        ("interval 86399999 milliseconds", False),
        ("interval 1 day -23 hours", False),  # an hour, to Spark
        ("interval 0.5 seconds", False),
        ("soon", False),
    ],
)
def test_log_and_removed_files_stay_for_a_day_at_least(value: str, works: bool) -> None:
    for name in ("delta.logRetentionDuration", "DELTA.deletedFileRetentionDuration"):
        assert (unfit_property(name, value) is None) == works


def test_what_delta_does_not_know_is_named_with_what_it_knows(tmp_path: Path) -> None:
    assert "did you mean delta.appendOnly?" in str(unfit_property("delta.appendOnyl", "true"))
    assert unfit_property("Owner", "me") == "Spark reserves that name"


def test_one_property_in_two_cases_of_letters_is_refused(tmp_path: Path) -> None:
    flow = _flow(tmp_path, **{"delta.appendOnly": "true", "delta.APPENDONLY": "false"})
    with pytest.raises(RuleInvalid, match=r"expected one property of that name, found delta.appendOnly, too"):
        flow.rule()


@pytest.mark.parametrize("name", NEVER)
def test_a_table_that_got_one_from_others_is_refused_before_a_run(tmp_path: Path, name: str) -> None:
    flow = Flow(tmp_path)
    ledger = lived(flow)
    DeltaTable(flow.sink()).alter.set_table_properties({name: "interval 9 days"}, raise_if_not_exists=False)
    assert forgetful([name.upper(), "a"]) == name
    with pytest.raises(Refused, match=f"{name} is set in the table, so no rule can write to it"):
        check_tables(flow.rule(), flow.place, ledger.id)


def test_a_sink_with_a_key_keeps_the_statistics_of_its_files(tmp_path: Path) -> None:
    flow = _flow(tmp_path, **dict.fromkeys(STATISTICS, "False"))
    assert lacks_statistics(flow.rule().sinks[0].properties)
    assert not lacks_statistics({STATISTICS[0].upper(): "false", STATISTICS[1]: "true"})
    flow.settings["sinks"][0]["key"] = ["k"]
    with pytest.raises(RuleInvalid, match="needs the statistics of the sink's files; found both false: remove one"):
        flow.rule()


def test_a_table_without_statistics_is_refused_before_a_run(tmp_path: Path) -> None:
    flow = Flow(tmp_path)
    flow.settings["sinks"] = [{"delta": flow.sink(), "key": ["start", "k"]}]
    ledger = lived(flow)
    check_tables(flow.rule(), flow.place, ledger.id)
    DeltaTable(flow.sink()).alter.set_table_properties(dict.fromkeys(STATISTICS, "false"))
    with pytest.raises(Refused, match=r"writeStatsAsStruct are false in the table, .* Set one to true"):
        check_tables(flow.rule(), flow.place, ledger.id)


def test_the_documentation_names_every_property_with_what_becomes_of_it() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "sinks.md").read_text()
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| `delta.")]
    told = {name: said for names, said in rows for name in re.findall(r"`(delta\.[\w.-]+)`", names)}
    assert {name for name, said in told.items() if said.startswith("works")} == set(WORKING)
    assert {name for name, said in told.items() if said.startswith("refused")} == set(REFUSED)
