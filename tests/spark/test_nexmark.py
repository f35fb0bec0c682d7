"""Nexmark's questions as rules, killed and resumed on the way, against DuckDB over the same tables."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession
from support.compared import CACHE, same
from support.crash import Crash, crash_at
from support.flow import rows_of
from support.nexmark import ANSWERS, answer

from bench.nexmark.generator import write_tables
from bench.nexmark.rules import NAMES, rule_of
from floodmark.ledger.home import Home
from floodmark.ledger.ledger import LedgerReader
from floodmark.spark.rule.run import RuleRun

POINTS = ("intent.after", "state.after", "sink0.after", "commit.before", "commit.after")


@pytest.fixture(scope="module")
def lake(spark: SparkSession) -> Iterator[Path]:
    folder = CACHE / f"nexmark-{uuid4().hex}"
    folder.mkdir(parents=True)
    write_tables(spark, folder, 20_000, commits=2)
    yield folder
    shutil.rmtree(folder)


def test_every_question_has_an_answer_of_its_own() -> None:
    assert set(NAMES) == set(ANSWERS)


@pytest.mark.prove  # joins and windows are compared with batch in each commit
@pytest.mark.parametrize("name", ["q4", "q5"])
def test_a_question_is_answered_as_by_duckdb(spark: SparkSession, lake: Path, place: Path, name: str) -> None:
    _check(spark, lake, place, name, {"max_files": 2}, random.Random(name).choice(POINTS), 1)


@pytest.mark.prove
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", NAMES)
def test_a_question_is_answered_in_many_epochs(
    spark: SparkSession, lake: Path, place: Path, name: str, seed: int
) -> None:
    drawn = random.Random(f"{name} {seed}")
    limits = {"max_files": drawn.choice((1, 2))}
    _check(spark, lake, place, name, limits, drawn.choice(POINTS), drawn.choice((1, 2)))


def _check(
    spark: SparkSession, lake: Path, place: Path, name: str, epoch: dict[str, int], point: str, nth: int
) -> None:
    def run() -> None:
        RuleRun(spark, rule_of(name, place, lake, epoch=epoch), place / "home", "test", lambda _: None).run()

    with crash_at(point, nth) as planned:
        try:
            run()
        except Crash:
            assert planned.fired
    assert planned.fired or point == "state.after", "a rule without state writes none"
    run()
    ledger = LedgerReader.load(Home(place / "home", name).ledger)
    assert ledger is not None
    assert ledger.head is not None
    assert ledger.head.watermark is not None
    assert ledger.head.epoch > 1
    expected = answer(name, lake, ledger.head.watermark)
    assert expected
    same([tuple(row.values()) for row in rows_of(str(place / "out" / name))], expected)
