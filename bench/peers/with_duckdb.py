"""The windows by DuckDB, merged into a Delta table by delta-rs: one transaction an epoch, which records the epoch."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import duckdb
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

APP = "peers"
PARTS = """
SELECT time_bucket(INTERVAL 1 MINUTE, ts) AS minute, k, count(*) AS n, max(v) AS most, sum(v) AS total
FROM read_parquet(?) GROUP BY ALL"""
SAME = "t.minute = s.minute AND t.k = s.k"
ADDED = {"n": "t.n + s.n", "most": "greatest(t.most, s.most)", "total": "t.total + s.total"}


def main(table: str, out: str, epochs: int, repeats: int) -> None:
    for i in range(repeats):
        begun = time.monotonic()
        folded(table, f"{out}-{i}", epochs)
        print("seconds", time.monotonic() - begun, flush=True)


def folded(table: str, out: str, epochs: int) -> None:
    duckdb.execute("SET threads = 2; SET TimeZone = 'UTC'")
    commits = commits_of(Path(table))
    size = len(commits) // epochs
    for epoch in range(epochs):
        files = [str(file) for commit in commits[epoch * size : (epoch + 1) * size] for file in commit]
        fold(duckdb.sql(PARTS, params=[files]).to_arrow_table(), out, epoch)


def fold(parts: pa.Table, out: str, epoch: int) -> None:
    recorded = CommitProperties(app_transactions=[Transaction(APP, epoch)])
    if epoch == 0:
        write_deltalake(out, parts, commit_properties=recorded)
        return
    merging = DeltaTable(out).merge(parts, SAME, source_alias="s", target_alias="t", commit_properties=recorded)
    merging.when_matched_update(ADDED).when_not_matched_insert_all().execute()


def commits_of(table: Path) -> list[list[Path]]:
    """The files of each commit that has some."""
    found = []
    for entry in sorted((table / "_delta_log").glob("*.json")):
        actions = map(json.loads, entry.read_text().splitlines())
        files = [table / action["add"]["path"] for action in actions if "add" in action]
        found += [files] if files else []
    return found


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
