"""A ledger of 10,000 epochs: its head in under 100 ms, its history in under a second, of processor time."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake
from test_ledger import RULE, commit, entry, first, intent

from floodmark.core.protocol.digests import Digest
from floodmark.core.protocol.records.rows import Counts, Kind, Row, Written
from floodmark.ledger import ledger as module
from floodmark.ledger.ledger import APP, Ledger, LedgerReader, schema
from floodmark.views.epochs import epoch_entries

EPOCHS = 10_000
DIGEST = {"s": Digest(rows=3, high="9" * 20, low="9" * 20)}
TABLES = {name: Written(version=1, commit=1, rows=3, digest=DIGEST["s"]) for name in ("sink/lake/out", "state/s")}


class Rows:
    """Chained rows of the size that a rule of one stream and one sink writes."""

    def __init__(self) -> None:
        self.found: list[Row] = []
        self._put("commit", 0, first().model_dump_json())
        for number in range(1, EPOCHS):
            self._fold(number)

    def _put(self, kind: Kind, epoch: int, body: str) -> None:
        before = self.found[-1].hash if self.found else ""
        row = Row(len(self.found) + 1, kind, 1, "token", epoch, 1, "run", "at", body, before)
        self.found.append(row.sealed())

    def _fold(self, number: int) -> None:
        planned = PLANNED.model_copy(update={"entry": entry(number)})
        self._put("intent", number, planned.model_dump_json())
        ended = ENDED.model_copy(update={"intent": planned.digest, "entry": planned.entry})
        self._put("commit", number, ended.model_dump_json())


LONG = RULE.model_copy(update={"sql": f"SELECT {'column, ' * 60} n FROM s"})
PLANNED = intent(1).model_copy(update={"digests": DIGEST, "rule": LONG.to_json()})
ENDED = commit(PLANNED).model_copy(
    update={"digests": DIGEST, "tables": TABLES, "counts": {"s": Counts(read=3, folded=3)}}
)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """All but its last epoch in files of a hundred rows, as one finds them; the last by its client, which rewrites."""
    address = str(tmp_path_factory.mktemp("long") / "ledger")
    Ledger.open(address, "one")
    rows = Rows().found
    for at in range(0, len(rows), 150):
        data = pa.Table.from_pylist([row.__dict__ for row in rows[at : at + 150]], schema=schema())
        done = CommitProperties(app_transactions=[Transaction(APP, rows[min(at + 149, len(rows) - 1)].seq)])
        write_deltalake(address, data, mode="append", commit_properties=done)
    ledger = Ledger.open(address, "two")
    planned = intent(EPOCHS)
    ledger.intend(planned)
    ledger.commit(commit(planned))
    return address


def seconds(of: Callable[[], object]) -> float:
    """Processor time, the least of five."""
    spent = []
    for _ in range(5):
        begun = time.process_time()
        of()
        spent.append(time.process_time() - begun)
    return min(spent)


def load(address: str) -> LedgerReader:
    found = LedgerReader.load(address)
    assert found is not None
    return found


def test_its_head_and_its_history(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    head = load(address).head
    assert head is not None
    assert (head.epoch, head.seq) == (EPOCHS, 2 * EPOCHS + 1)
    assert len(load(address).rows) == 2 * EPOCHS + 1
    quick, whole = seconds(lambda: load(address)), seconds(lambda: load(address).rows)
    with capsys.disabled():
        print(f"\n{EPOCHS} epochs: head {quick * 1000:.0f} ms, history {whole:.2f} s of processor time")
    assert quick < 0.1
    assert whole < 1


def test_what_is_told_of_each_epoch(address: str) -> None:
    assert [one["epoch"] for one in epoch_entries(load(address).rows, True, 3)] == [EPOCHS - 2, EPOCHS - 1, EPOCHS]


def test_the_remembered_head_is_the_one_that_all_rows_give(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    head = load(address).head
    monkeypatch.setattr(module, "_recall", lambda _: None)
    assert load(address).head == head


def peak(of: Callable[[], object]) -> int:
    """The most bytes of Python's objects meanwhile."""
    tracemalloc.start()
    of()
    found = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return found


def test_few_of_its_rows_are_in_memory_while_they_are_checked(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PORTION", 1000)
    whole = peak(lambda: load(address).rows)
    assert peak(lambda: Ledger.open(address, "three").tidy()) < whole / 4
    monkeypatch.setattr(module, "_recall", lambda _: None)
    assert peak(lambda: load(address)) < whole / 4
