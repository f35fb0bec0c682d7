"""Files in an object store as targets: each row is in one object that counts, whatever ends a relay."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import obstore
import pyarrow.parquet as pq
import pytest
from obstore.store import S3Store
from pyarrow.fs import S3FileSystem
from pyspark.sql import SparkSession
from support.deliveries import Copied, flow_of, in_order, run_all
from support.flow import Flow
from support.objects import BUCKET, Store, served

from floodmark.connectors.ports.target import Layout
from floodmark.connectors.targets.files.options import WrittenFolder
from floodmark.connectors.targets.files.target import FilesTarget
from floodmark.core.text.ddl import columns_of
from floodmark.proving.play.processes import wait_until
from floodmark.reading import files_of

pytestmark = [pytest.mark.prove, pytest.mark.timeout(900)]
FORMATS = ("parquet", "json", "csv")
DDL = "at TIMESTAMP, k STRING, v DOUBLE, n BIGINT"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with served(tmp_path_factory.mktemp("store")) as found, pytest.MonkeyPatch.context() as patch:
        for name, value in found.env.items():
            patch.setenv(name, value)
        yield found


@pytest.fixture(scope="module")
def written(store: Store, root: Path, spark: SparkSession) -> Flow:
    sinks = [{"files": {"path": f"{store.lake}/kept {one}", "format": one}} for one in FORMATS]
    return run_all(spark, flow_of(root, sinks))


class Shop(Copied):
    """The rule's folders in the store, empty, and its relays to them."""

    def __init__(self, written: Flow, place: Path, store: Store):
        super().__init__(written, place, store.env)
        self.objects = S3Store(BUCKET, client_options={"allow_http": True})
        obstore.delete(self.objects, self.names(""))

    def names(self, folder: str) -> list[str]:
        return [one["path"] for some in obstore.list(self.objects, folder or None) for one in some]

    def data(self, name: str) -> list[str]:
        return [path.rpartition("/")[2] for path in self.names(f"kept {name}/data")]

    def rows(self, name: str) -> list[tuple[Any, ...]]:
        options = WrittenFolder.model_validate({"path": f"s3a://{BUCKET}/kept {name}", "format": name})
        batches = FilesTarget(options.address(), options).read_back(Layout(columns_of(DDL)))
        return in_order([row for batch in batches for row in batch.to_pylist()])

    def has_all(self) -> bool:
        return [self.rows(one) for one in FORMATS] == [self.expected(i) for i in range(3)]


@pytest.fixture
def shop(written: Flow, place: Path, store: Store) -> Shop:
    return Shop(written, place, store)


def test_other_programs_read_the_objects_that_count(shop: Shop) -> None:
    done = shop.relays.ship()
    assert (done.code, shop.has_all()) == (0, True), done.said
    assert shop.relays.ship().said.count("nothing new") == 3
    (file,) = files_of(f"s3a://{BUCKET}/kept parquet")
    assert file.path == f"s3://{BUCKET}/kept parquet/data/000000000001.parquet"
    place = os.environ["AWS_ENDPOINT_URL"].partition("://")[2]
    lake = S3FileSystem(endpoint_override=place, scheme="http", region=os.environ["AWS_REGION"])
    assert in_order(pq.read_table(f"{BUCKET}/kept parquet/data", filesystem=lake).to_pylist()) == shop.expected(0)


@pytest.mark.parametrize("point", ["relay.before", "relay.sent", "relay.after"])
def test_a_killed_relay_neither_loses_nor_doubles_a_row(shop: Shop, point: str) -> None:
    for one in FORMATS:
        shop.relays.killed_at(point, "--target", f"kept {one}")
        assert len(shop.data(one)) == (point != "relay.before")
        assert [name for name in shop.data(one) if not name.startswith(".")] == (
            [f"000000000001.{one}"] if point == "relay.after" else []
        )
    done = shop.relays.ship()
    assert (done.code, shop.has_all()) == (0, True), done.said
    assert [shop.data(one) for one in FORMATS] == [[f"000000000001.{one}"] for one in FORMATS]


@pytest.mark.parametrize("point", ["relay.before", "relay.sent"])
def test_a_stopped_relay_that_goes_on_after_another_has_no_effect(shop: Shop, point: str) -> None:
    with shop.relays.stopped_at(point, "--target", "kept csv") as zombie:
        done = shop.relays.ship()
        assert (done.code, shop.has_all()) == (0, True), done.said
        shop.relays.go_on(point)
        assert wait_until(lambda: zombie.poll() is not None, zombie, 60.0)
    assert zombie.returncode == 1
    assert (shop.has_all(), shop.data("csv")) == (True, ["000000000001.csv"])


def test_an_object_of_somebody_and_one_that_is_gone_are_named(shop: Shop) -> None:
    obstore.put(shop.objects, "kept json/mine.txt", b"x")
    done = shop.relays.ship()
    assert done.code == 2 and "it has files, such as mine.txt, and no manifest of a rule" in done.said
    assert shop.rows("csv") == shop.expected(2), "the other targets go on"
    obstore.delete(shop.objects, "kept csv/data/000000000001.csv")
    done = shop.relays.command("audit", "delivered", "--deep", "--home", str(shop.root / "home"))
    assert (done.code, "expected the file 000000000001.csv of 000000000001.json, found none" in done.said) == (3, True)
