"""Digests as values, and their hashes without Spark."""

from __future__ import annotations

import random
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from floodmark.audit.content import rowhash, xxh64
from floodmark.core.protocol.digests import Digest, Floats, digest_of


def floats(total: float, size: float | None = None, nulls: int = 0, nans: int = 0) -> Floats:
    return Floats(nulls=nulls, nans=nans, sum=repr(total), size=repr(abs(total) if size is None else size))


def hashed(*values: bytes, seed: int = 0) -> list[str]:
    data, offsets = b"".join(values), np.cumsum([0, *map(len, values)])
    found = xxh64.of_bytes(np.frombuffer(data, np.uint8), offsets, np.full(len(values), seed, np.uint64))
    return [f"{value:016x}" for value in found.tolist()]


@pytest.mark.parametrize("at_once", [1, 7, 20])
def test_texts_of_one_length_are_hashed_in_portions(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    data, offsets = np.arange(60, dtype=np.uint8), np.array([0, 5, 10, 10, 15, 20, 60, 60])
    whole = xxh64.of_bytes(data, offsets, xxh64.seeds(7))
    monkeypatch.setattr(xxh64, "AT_ONCE", at_once)
    assert (xxh64.of_bytes(data, offsets, xxh64.seeds(7)) == whole).all()


def test_xxh64_gives_the_published_hashes() -> None:
    published = {b"": "ef46db3751d8e999", b"a": "d24ec4f1a98c6e5b", b"abc": "44bc2cf5ad770999"}
    assert hashed(*published) == list(published.values())
    assert hashed(b"Nobody inspects the spammish repetition") == ["fbcea83c8a378bf1"]


def test_a_chain_of_values_gives_what_sparks_documentation_has() -> None:
    found = xxh64.of_bytes(np.frombuffer(b"Spark", np.uint8), np.array([0, 5]), xxh64.seeds(1))
    for number in (123, 2):
        found = xxh64.of_int32(np.array([number], np.int32), found)
    assert found.view(np.int64).tolist() == [5602566077635097486]


def test_a_digest_has_the_sums_of_the_hashes_halves() -> None:
    hashes = [random.Random(seed).getrandbits(64) for seed in range(1000)]
    high, low = sum(value >> 32 for value in hashes), sum(value & 0xFFFFFFFF for value in hashes)
    found = digest_of(len(hashes), high - (len(hashes) << 31), low - (len(hashes) << 31), {})
    assert (found.rows, int(found.high), int(found.low)) == (1000, high, low)
    assert digest_of(1, 0, 0, {"v": floats(2.0)}).floats == {"v": floats(2.0)}
    assert digest_of(0, None, None, {}) == Digest()


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (floats(1.0), floats(1.0 + 1e-10), True),
        (floats(1.0), floats(1.0 + 1e-8), False),
        (floats(1e-7, 1e3), floats(-1e-7, 1e3), True),  # what is left of terms that cancel each other
        (floats(0.0, 2.0), floats(0.0, 4.0), False),
        (floats(float("inf")), floats(float("inf")), True),
        (floats(float("inf")), floats(1.0), False),
        (floats(float("nan"), float("inf")), floats(float("nan"), float("inf")), True),
        (floats(float("inf")), floats(1.75e308), True),  # three huge values, of which two cancel each other
        (floats(float("inf"), float("inf")), floats(1.75e308, float("inf")), True),
        (floats(5.0, float("inf")), floats(7.0, 12.0), False),
        (floats(1e308), floats(1e307), False),
        (floats(1.0, 1.7e308), floats(1.0, 1.7e308), True),  # just not huge
        (floats(1.0, float("inf")), floats(1.0, 1.7e308), False),
        (floats(0.0, 0.0), floats(0.0, 0.0), True),
        (floats(1.0, nans=1), floats(1.0), False),
        (floats(1.0, nulls=1), floats(1.0), False),
    ],
)
def test_sums_are_close_by_the_size_of_their_terms(one: Floats, other: Floats, same: bool) -> None:
    told = list(Digest(rows=1, floats={"v": one}).differences(Digest(rows=1, floats={"v": other})))
    assert [text.split(":")[0] for text in told] == ([] if same else ["column v"])


def test_what_differs_is_told() -> None:
    one = Digest(rows=2, high="16", low="1", floats={"v": floats(1.0)})
    assert list(one.differences(one)) == []
    assert next(one.differences(Digest(rows=1))) == "rows: 2, now 1"
    assert list(one.differences(one.model_copy(update={"low": "2"}))) == ["hash of the rows: 10/1, now 10/2"]
    assert next(one.differences(one.model_copy(update={"floats": {}}))).startswith("column v: sum 1.0")


def table(**columns: pa.Array) -> pa.Table:
    return pa.table(columns)


def test_the_order_of_rows_columns_and_batches_is_of_no_matter() -> None:
    rows = table(a=pa.array([1, None, 3]), B=pa.array(["x", "y", None]))
    other = table(b=pa.array([None, "x", "y"]), A=pa.array([3, 1, None]))
    pieces = pa.Table.from_batches([rows.slice(1).to_batches()[0], rows.slice(0, 1).to_batches()[0]])
    assert rowhash.digest(rows, True) == rowhash.digest(other, True) == rowhash.digest(pieces, True)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            table(a=pa.array([1]), b=pa.array([None], pa.int64())),
            table(a=pa.array([None], pa.int64()), b=pa.array([1])),
        ),
        (table(a=pa.array([[1], [2]])), table(a=pa.array([[1, 2], []]))),
        (table(a=pa.array([[None, 1]])), table(a=pa.array([[1, None]]))),
        (table(a=pa.array([[]], pa.list_(pa.int64()))), table(a=pa.array([None], pa.list_(pa.int64())))),
        (table(a=pa.array([1, 1])), table(a=pa.array([1, 2]))),
        (table(a=pa.array([1, 1, 2, 2])), table(a=pa.array([3, 3, 4, 4]))),  # an XOR would see nothing in both
        (table(a=pa.array(["ab"]), b=pa.array(["c"])), table(a=pa.array(["a"]), b=pa.array(["bc"]))),
        (table(a=pa.array([Decimal("1.5")])), table(a=pa.array([Decimal("-1.5")]))),
    ],
)
def test_other_rows_have_another_digest(one: pa.Table, other: pa.Table) -> None:
    assert rowhash.digest(one, True) != rowhash.digest(other, True)


def test_a_column_of_nulls_changes_nothing() -> None:
    rows = table(a=pa.array([1, 2]))
    assert rowhash.digest(rows, True) == rowhash.digest(rows.append_column("n", pa.nulls(2, pa.string())), True)


def test_computed_floating_point_is_summed_and_copied_is_hashed() -> None:
    values = table(v=pa.array([0.5, None, float("nan"), -1.0]))
    found = rowhash.digest(values, computed=True)
    assert found.floats == {"v": rowhash.Sums(nulls=1, nans=1, sum=-0.5, size=1.5)}
    moved = table(v=pa.array([-1.0, None, float("nan"), 0.5]))
    assert found == rowhash.digest(moved, computed=True)
    assert rowhash.digest(values, computed=False).floats == {}
    other = table(v=pa.array([0.5, None, float("nan"), -2.0]))
    assert rowhash.digest(values, computed=False).low != rowhash.digest(other, computed=False).low


def test_both_zeros_are_one() -> None:
    zero, minus = (rowhash.digest(table(v=pa.array([value])), computed=False) for value in (0.0, -0.0))
    assert zero == minus
