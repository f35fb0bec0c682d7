"""A transaction looks at all files of a table without a call to the JVM for each."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from py4j.protocol import MEMORY_COMMAND_NAME
from pyspark.sql import SparkSession

from floodmark.ledger.delta.keybounds import Bound
from floodmark.spark.session import jvm as shortcuts
from floodmark.spark.write.rewriting import Rewriting, name_of, rows_of

FILES = 300


def test_calls_to_the_jvm_do_not_grow_with_the_files_of_a_table(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    address = str(tmp_path / "t")
    rows = pa.table({"p": list(range(FILES)), "n": list(range(FILES))})
    write_deltalake(address, rows, partition_by=["p"])
    reading = Rewriting(spark, address, "floodmark/test")
    monkeypatch.setattr(shortcuts, "PORTION", FILES // 3 + 1)
    jvm: Any = spark._jvm
    client, calls = jvm._gateway_client, list[str]()
    send = client.send_command

    def counted(command: str, *args: Any, **named: Any) -> Any:
        if not command.startswith(MEMORY_COMMAND_NAME):  # it lets go of an object, whenever Python collects garbage
            calls.append(command)
        return send(command, *args, **named)

    gc.collect()
    monkeypatch.setattr(client, "send_command", counted)
    files = reading._files_within([])
    some = reading._files_within([Bound("n", "bigint", 7, 8)])
    table = reading._table(files)
    assert len(calls) < FILES
    monkeypatch.undo()
    assert len({name_of(file) for file in files}) == FILES and sum(map(rows_of, files)) == FILES
    assert sorted(file.partition["p"] or "" for file in some) == ["7", "8"]
    assert (table.count(), len(reading._removed(some).mkString(" ").split("RemoveFile")) - 1) == (FILES, 2)
