"""The DAG of all rules' upkeep, and what its tasks do."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException
from airflow.serialization.serialized_objects import DagSerialization
from deltalake import DeltaTable
from support.aged import age, files
from support.flow import Flow
from support.lives import an_epoch, lived
from test_dags import DAGS, write

from floodmark.core.protocol.records.rows import Seal
from floodmark.ledger.ledger import Ledger, LedgerReader
from floodmark.ledger.locking import held
from floodmark_airflow.dags.dag_factory import all_dags
from floodmark_airflow.dags.upkeep import build_upkeep


def task(name: str) -> Any:
    dag = build_upkeep()
    assert dag is not None
    return dag.get_task(name)


def execute(name: str) -> None:
    task(name).execute({"run_id": "u1", "ti": SimpleNamespace(try_number=1)})


def test_every_sound_rule_has_a_task_and_the_most_frequent_one_sets_the_pace(rules: Path) -> None:
    assert build_upkeep() is None
    write(rules, "one")
    write(rules, "two", cleanup={"every": "6 hours"})
    write(rules, "bad", qos=7)
    bag = DagBag(dag_folder=str(DAGS))
    dag = bag.dags["upkeep"]
    assert sorted(dag.task_ids) == ["one", "two"]
    assert dag.schedule == timedelta(hours=6) and not dag.catchup and dag.max_active_runs == 1
    assert dag.is_paused_upon_creation, "it removes files: somebody is to say so"
    assert all(one.retries and one.execution_timeout and one.max_active_tis_per_dag == 1 for one in dag.tasks)
    DagSerialization.from_dict(DagSerialization.to_dict(dag))
    assert not any(one.endswith("/upkeep.py") for one in bag.import_errors)


def test_the_owners_of_many_rules_have_room_in_airflows_column(rules: Path) -> None:
    for number in range(40):
        write(rules, f"r{number:02d}", group="many", airflow={"owner": f"{number:02d}" + "x" * 98})
    dags = {dag.dag_id: dag for dag in all_dags()} | {"upkeep": build_upkeep()}
    for name in ("upkeep", "group.many"):
        owner = DagSerialization.from_dict(DagSerialization.to_dict(dags[name])).owner
        assert owner.count("x" * 98) == 10 and "…" in owner and len(owner) < 1100
    assert task("r09").owner.startswith("09x") and task("r10").owner == "…"


def test_a_task_maintains_its_rule_once_in_its_time(rules: Path, place: Path) -> None:
    write(rules, "fresh")
    flow = Flow(place, "one")
    ledger = lived(flow)
    an_epoch(flow, ledger)
    orphan = Path(flow.sink()) / "part-00000-orphan.parquet"
    orphan.write_bytes(b"x")
    age(flow.sink(), 60)
    with pytest.raises(AirflowSkipException, match="rule fresh has not run yet"):
        execute("fresh")
    with held(flow.place.lock, "a run"), pytest.raises(AirflowException, match="process"):
        execute("one")
    execute("one")
    assert not orphan.exists() and len(DeltaTable(flow.sink()).file_uris()) == 1 and len(files(flow.sink())) == 3
    assert flow.ledger().rows[-1].run == "u1.try1"
    with pytest.raises(AirflowSkipException, match="not due: last maintained 20"):
        execute("one")


def test_a_store_that_refuses_may_be_asked_again_and_its_address_is_not_told(
    rules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(_: object) -> None:
        raise OSError("GET http://user:word@host/ledger gave 403")

    write(rules, "one")
    monkeypatch.setattr(LedgerReader, "load", refuses)
    with pytest.raises(AirflowException, match=r"OSError: GET http://\*\*\*@host/ledger gave 403") as fault:
        execute("one")
    assert type(fault.value) is AirflowException and fault.value.__suppress_context__


def test_a_rule_whose_tables_are_about_to_be_others_fails_its_task_for_good(rules: Path, place: Path) -> None:
    flow = Flow(place, "one")
    lived(flow).seal(Seal(why="reset", successor=2, token="t", keep_output=False, discarded=None))
    assert Ledger.open(flow.place.ledger, "x").head is not None
    with pytest.raises(AirflowFailException, match="a reset has not finished"):
        execute("one")
