"""Folders of files as targets: each row is in one file that counts, whatever ends a relay."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from support.deliveries import EPOCHS, Copied, flow_of, in_order, run_all
from support.flow import Flow, event
from support.outboxed import redone
from support.running import abandon, crash, reset, run

from floodmark.audit.certificate import audit
from floodmark.connectors.ports.target import Layout
from floodmark.connectors.relay.holding import held_by
from floodmark.connectors.relay.shipping import ship_all
from floodmark.connectors.targets.files.options import WrittenFolder
from floodmark.connectors.targets.files.target import FilesTarget
from floodmark.core.text.ddl import columns_of
from floodmark.errors import NotOwned, Refused
from floodmark.proving.play.processes import wait_until
from floodmark.reading import files_of

FORMATS = ("parquet", "json", "csv")
POINTS = ("relay.sent", *(pytest.param(one, marks=pytest.mark.prove) for one in ("relay.before", "relay.after")))
DDL = "at TIMESTAMP, k STRING, v DOUBLE, n BIGINT"


def made(root: Path, formats: Sequence[str] = FORMATS) -> Flow:
    return flow_of(root, [{"files": {"path": str(root / "files" / one), "format": one}} for one in formats])


@pytest.fixture(scope="module")
def written(root: Path, spark: SparkSession) -> Flow:
    return run_all(spark, made(root))


class Shop(Copied):
    """The rule's folders, empty, and its relays to them."""

    def __init__(self, written: Flow, place: Path):
        super().__init__(written, place, {})
        self.files = written.root / "files"

    def manifests(self, name: str = "parquet") -> list[Path]:
        return sorted((self.files / name / "manifests").iterdir())

    def data(self, name: str = "parquet") -> list[Path]:
        found = self.files / name / "data"
        return sorted(found.iterdir()) if found.exists() else []

    def seen(self, name: str = "parquet") -> list[Path]:
        """What a program that reads folders sees."""
        return list((self.files / name).glob("data/[!.]*"))

    def rows(self, name: str) -> list[tuple[Any, ...]]:
        path = self.files / name
        target = FilesTarget(f"files://{path}", WrittenFolder.model_validate({"path": str(path), "format": name}))
        batches = target.read_back(Layout(columns_of(DDL)))
        return in_order([row for batch in batches for row in batch.to_pylist()])

    def has_all(self) -> bool:
        return [self.rows(one) for one in FORMATS] == [self.expected(i) for i in range(3)]


@pytest.fixture
def shop(written: Flow, place: Path) -> Shop:
    shutil.rmtree(written.root / "files", ignore_errors=True)
    return Shop(written, place)


def test_a_folder_gets_what_a_delta_table_gets(shop: Shop) -> None:
    done = shop.relays.ship()
    assert (done.code, shop.has_all()) == (0, True), done.said
    assert shop.relays.ship().said.count("nothing new") == 3
    assert in_order(pq.read_table(shop.files / "parquet" / "data").to_pylist()) == shop.expected(0)
    lines = [json.loads(line) for file in shop.seen("json") for line in file.read_text().splitlines()]
    assert in_order([{**row, "at": datetime.fromisoformat(row["at"])} for row in lines]) == shop.expected(1)
    for one in FORMATS:
        (file,) = files_of(shop.files / one)
        assert (file.rows, file.bytes, file.generation, file.epoch) == (
            len(shop.expected(0)),
            Path(file.path).stat().st_size,
            1,
            5,
        )


def test_a_rule_that_has_not_begun_starts_in_no_folder_of_another(spark: SparkSession, shop: Shop, place: Path) -> None:
    """As after a rename, under the old name; the folder is all that shows it."""
    assert shop.relays.ship().code == 0
    again = replace(shop.written, root=place / "again")
    again.settings = {"sinks": [{"files": {"path": str(shop.files / "parquet")}}]}
    again.arrive(EPOCHS[0])
    with pytest.raises(NotOwned, match="it belongs to another rule's ledger"):
        run(spark, again)
    assert not again.home.joinpath(again.name).exists()


def test_a_reset_leaves_no_row_behind_that_its_columns_cannot_hold(spark: SparkSession, place: Path) -> None:
    kept = {"files": {"path": str(place / "kept"), "format": "json"}, "on_reset": "keep"}
    flow = Flow(place, sql="SELECT k FROM events", stream={"event_time": None, "lateness": None})
    flow.settings = {"sinks": [kept]}
    flow.arrive([event(1, "a", n=1)])
    run(spark, flow)
    flow.sql = "SELECT n AS k FROM events"
    for _ in range(2):
        with pytest.raises(Refused, match="ship the rest with `floodmark relay counted --target kept`, then reset"):
            reset(spark, flow)
    assert [one.text() for one in ship_all(flow.rule(), flow.place)] == ["target kept: 1 rows of 1 portion shipped"]
    reset(spark, flow)
    run(spark, flow)
    assert [one.fault for one in ship_all(flow.rule(), flow.place)] == [None]
    files = files_of(place / "kept")
    assert [json.loads(Path(one.path).read_text()) for one in files] == [{"k": "a"}, {"k": 1}]


@pytest.mark.parametrize("point", POINTS)
def test_a_killed_relay_neither_loses_nor_doubles_a_row(shop: Shop, point: str) -> None:
    for one in FORMATS:
        shop.relays.killed_at(point, "--target", one)
        assert len(shop.seen(one)) == (point == "relay.after")
        assert len(shop.data(one)) == (point != "relay.before")
    done = shop.relays.ship()
    assert (done.code, shop.has_all()) == (0, True), done.said
    assert [shop.data(one) for one in FORMATS] == [shop.seen(one) for one in FORMATS]


@pytest.mark.parametrize("point", [pytest.param("relay.before", marks=pytest.mark.prove), "relay.sent"])
def test_a_stopped_relay_that_goes_on_after_another_has_no_effect(shop: Shop, point: str) -> None:
    with shop.relays.stopped_at(point, "--target", "csv") as zombie:
        done = shop.relays.ship()
        assert (done.code, shop.has_all()) == (0, True), done.said
        shop.relays.go_on(point)
        assert wait_until(lambda: zombie.poll() is not None, zombie, 60.0)
    assert zombie.returncode == 1
    assert shop.has_all()
    assert shop.data("csv") == shop.seen("csv")


def test_a_file_that_has_not_its_name_yet_counts_and_gets_it(shop: Shop) -> None:
    assert shop.relays.ship().code == 0
    (file,) = shop.seen()
    (listed,) = json.loads(shop.manifests()[-1].read_text())["files"]
    file.rename(file.with_name(listed["staged"]))
    (file.parent / ".000000000001-0000ffff.parquet").write_text("of a relay that lost")
    (file.parent / ".000000000009-0000ffff.parquet").write_text("of a relay that may go on")
    assert (shop.seen(), shop.has_all()) == ([], True)
    assert shop.relays.ship().code == 0
    assert [one.name for one in shop.data()] == [".000000000009-0000ffff.parquet", file.name]
    assert shop.has_all()


@pytest.mark.parametrize(("qos", "times"), [(1, 2), pytest.param(0, 0, marks=pytest.mark.prove)])
def test_qos_1_doubles_and_qos_0_loses(shop: Shop, place: Path, qos: int, times: int) -> None:
    path = place / "own" / "files"
    redone(place / "own", {"files": {"path": str(path), "format": "json"}, "qos": qos})
    lines = [line for file in path.glob("data/[!.]*") for line in file.read_text().splitlines()]
    assert sorted(json.loads(line)["n"] for line in lines) == sorted([1, 2] * times)


def _edited(old: str, new: str) -> Callable[[Shop], object]:
    def edit(shop: Shop) -> None:
        file = shop.manifests()[-1]
        assert old in file.read_text()
        file.write_text(file.read_text().replace(old, new))

    return edit


@pytest.mark.parametrize(
    ("change", "said", "code"),
    [
        (_edited('"epoch": 5', '"epoch": 2'), "its position is not one of the ledger's", 3),
        pytest.param(_edited('"seq": ', '"seq": 9'), "the home is an older copy", 3, marks=pytest.mark.prove),
        (_edited('"files"', '"file"'), "its manifest 000000000001.json cannot be read", 3),
        (lambda shop: shop.manifests()[-1].unlink(), "it was restored from a copy", 3),
        (
            lambda shop: shutil.rmtree(shop.files / "parquet" / "manifests"),
            "it has files, such as data/000000000001",
            2,
        ),
        pytest.param(
            *(lambda shop: shutil.rmtree(shop.files / "parquet"), "nothing is there now", 3),
            marks=pytest.mark.prove,
        ),
    ],
)
def test_manifests_that_somebody_changed_are_named(
    shop: Shop, change: Callable[[Shop], object], said: str, code: int
) -> None:
    shop.relays.ship("--target", "parquet")
    change(shop)
    done = shop.relays.ship("--target", "parquet")
    assert (done.code, said in done.said) == (code, True), done.said
    assert len(done.said.splitlines()) == 1


def test_a_folder_of_somebody_is_named(shop: Shop) -> None:
    (shop.files / "parquet" / "data").mkdir(parents=True)
    (shop.files / "parquet" / "data" / "mine.parquet").write_text("")
    done = shop.relays.ship("--target", "parquet")
    assert (done.code, "it has files, such as data/mine.parquet, and no manifest" in done.said) == (2, True), done.said
    (shop.files / "json").write_text("")
    done = shop.relays.ship("--target", "json")
    assert (done.code, "it cannot be read or written: " in done.said) == (1, True), done.said


def test_an_abandoned_epoch_leaves_the_target_as_it_was(place: Path, spark: SparkSession) -> None:
    """The epoch has written the outboxes, and was not committed."""
    flow = made(place, ("csv",))
    shop = Shop(flow, place)
    flow.arrive(EPOCHS[0])
    run(spark, flow)
    assert shop.relays.ship().code == 0
    flow.arrive(EPOCHS[1])
    assert crash(spark, flow, "commit.before")
    assert shop.relays.ship().said.count("nothing new") == 1
    abandon(spark, flow)
    assert shop.relays.ship().said.count("nothing new") == 1
    assert shop.rows("csv") == in_order(EPOCHS[0])
    run(spark, flow)
    assert (flow.ledger().begun.abandoned, flow.ledger().begun.epoch) == ((2,), 3)
    assert shop.relays.ship().code == 0
    assert shop.rows("csv") == shop.expected(0)
    found = audit(flow.name, flow.home, deep=True, targets=partial(held_by, flow.place))
    assert found is not None
    assert (found.verdict, found.findings) == ("proven", [])


@pytest.mark.prove
def test_a_reset_takes_files_away_and_ships_all_again(place: Path, spark: SparkSession) -> None:
    flow = made(place, ("csv",))
    shop = Shop(flow, place)
    flow.arrive(EPOCHS[0])
    run(spark, flow)
    assert shop.relays.ship().code == 0
    reset(spark, flow)
    shop.relays.killed_at("relay.sent", "--target", "csv")
    assert shop.rows("csv") == in_order(EPOCHS[0])
    assert shop.relays.ship().code == 0
    assert (shop.rows("csv"), shop.data("csv")) == ([], [])
    run(spark, flow)
    assert shop.relays.ship().code == 0
    assert shop.rows("csv") == shop.expected(0)
    assert {file.generation for file in files_of(shop.files / "csv")} == {2}
