"""How long the pages in Airflow's UI take, with many rules of long ledgers. No Spark.

    python -m bench.pages [--rules N] [--epochs N]

One ledger is made and linked as often as there are rules. Each line is one request through Airflow's own application,
by the clock. Aim: under a second each, whatever has to be read.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from floodmark.connectors.delta.offsets import DeltaOffset
from floodmark.core.protocol.digests import Digest
from floodmark.core.protocol.entry import Entry
from floodmark.core.protocol.records.rows import Commit, Counts, Intent, Kind, Row, Written
from floodmark.core.rules.rule import Rule, load_rule
from floodmark.ledger.ledger import APP, Ledger, schema

CHECKOUT = Path(__file__).parents[1]
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = 60_000_000
SQL = "SELECT window.start AS s, k, count(*) AS n FROM events GROUP BY window(at, '1 hour'), k"
AIM = 1.0  # seconds


class LongLedger:
    """The rows of a rule that has folded an epoch every five minutes, chained as the ledger's client chains them."""

    def __init__(self, rule: Rule, table: str, epochs: int):
        self._rule, self._table, self.rows = rule, table, list[Row]()
        first = Commit(entry=self._entry(0), watermark=None, maxima={"events": None}, rule=rule.to_json())
        self._put("commit", 0, first.model_dump_json())
        for epoch in range(1, epochs + 1):
            self._fold(epoch)

    def _entry(self, epoch: int) -> str:
        return Entry(epoch, (DeltaOffset(self._table, epoch, -1, False).line(),)).text()

    def _put(self, kind: Kind, epoch: int, body: str) -> None:
        at = (BEGIN + timedelta(minutes=5 * epoch)).isoformat(timespec="milliseconds")
        before = self.rows[-1].hash if self.rows else ""
        row = Row(len(self.rows) + 1, kind, 1, "token", epoch, 1, f"scheduled__{at}.try1", at, body, before)
        self.rows.append(row.sealed())

    def _fold(self, epoch: int) -> None:
        counts, digest = {"events": Counts(read=1000 + epoch % 97, folded=990 + epoch % 97, late=10)}, Digest(rows=1)
        mark = int(BEGIN.timestamp() * 1e6) + 5 * MINUTE * epoch
        kept: dict[str, Any] = {"watermark": mark, "maxima": {"events": mark}, "counts": counts}
        planned = Intent(entry=self._entry(epoch), watermark_before=None, rule=self._rule.to_json(), rule_hash="h",
                         zone="UTC", ansi=True, digests={"events": digest}, **kept)  # fmt: skip
        self._put("intent", epoch, planned.model_dump_json())
        tables = {
            name: Written(version=epoch << 20, commit=epoch, rows=9, digest=digest) for name in ("late", "sink/o")
        }
        spent = {"fold": 1.5 + epoch % 13 / 10, "write": 0.4}
        ended = Commit(intent=planned.digest, entry=planned.entry, tables=tables, output_rows=7, seconds=spent, **kept)
        self._put("commit", epoch, ended.model_dump_json())

    def write(self, address: str) -> None:
        """Write files of 150 rows. The ledger's client then rewrites them and remembers the head, as at a gate."""
        Ledger.open(address, "made")
        for at in range(0, len(self.rows), 150):
            part = self.rows[at : at + 150]
            done = CommitProperties(app_transactions=[Transaction(APP, part[-1].seq)])
            data = pa.Table.from_pylist([row.__dict__ for row in part], schema=schema())
            write_deltalake(address, data, mode="append", commit_properties=done)
        Ledger.open(address, "made")


def make(folder: Path, rules: int, epochs: int) -> list[str]:
    """Write rule files, homes and sources. Returns the names of the rules."""
    names = [f"rule_{number:03}" for number in range(rules)]
    for name in names:
        _write_rule(folder, name)
    source = folder / "lake" / names[0]
    columns = pa.schema([("at", pa.timestamp("us", tz="UTC")), ("k", pa.string())])
    write_deltalake(str(source), pa.Table.from_pylist([{"at": BEGIN, "k": "a"}], schema=columns))
    rule = load_rule(folder / "rules" / f"{names[0]}.yaml", {"LAKE": str(folder / "lake")})
    first = folder / "home" / names[0]
    LongLedger(rule, str(DeltaTable(str(source)).metadata().id), epochs).write(str(first / "ledger"))
    for name in names[1:]:
        shutil.copytree(first, folder / "home" / name, copy_function=os.link)
        shutil.copytree(source, folder / "lake" / name, copy_function=os.link)
    return names


def _write_rule(folder: Path, name: str) -> None:
    (folder / "rules").mkdir(parents=True, exist_ok=True)
    stream = {"delta": f"${{LAKE}}/{name}", "event_time": "at", "lateness": "30 seconds"}
    sinks = [{"delta": f"${{LAKE}}/{name}_out"}]
    text = {"rule": name, "streams": {"events": stream}, "sql": SQL, "sinks": sinks}
    (folder / "rules" / f"{name}.yaml").write_text(yaml.safe_dump(text, sort_keys=False))


class Asked:
    """A signed-in user of an Airflow that knows the rules' DAGs."""

    def __init__(self, folder: Path, names: list[str]):
        sys.path.insert(0, str(CHECKOUT / "scripts"))
        import airflow_env

        places = (folder / part for part in ("airflow", "rules", "home", "lake"))
        (folder / "airflow").mkdir()
        os.environ.update(airflow_env.environment(*places, airflow_env.Ports(), "of this measurement only" * 3))
        from airflow.api_fastapi.app import create_app, get_auth_manager
        from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
        from airflow.utils.db import initdb
        from starlette.testclient import TestClient

        initdb()
        _know(names)
        self._client = TestClient(create_app(apps="core"))
        token = get_auth_manager().generate_jwt(SimpleAuthManagerUser(username="one", role="VIEWER", teams=None))
        self._headers = {"Authorization": f"Bearer {token}"}

    def get(self, path: str) -> tuple[float, bool]:
        """Seconds of a request, and whether the page is complete."""
        begun = time.perf_counter()
        answer = self._client.get(f"/floodmark/{path}", headers=self._headers)
        assert answer.status_code == 200, answer.text
        return time.perf_counter() - begun, 'http-equiv="refresh"' not in answer.text

    def until_whole(self, path: str) -> tuple[float, float]:
        """Seconds of the first request, and those until a page is complete."""
        begun = time.perf_counter()
        first, whole = self.get(path)
        while not whole:
            _, whole = self.get(path)
        return first, time.perf_counter() - begun


def _know(names: list[str]) -> None:
    from airflow.models.dag import DagModel
    from airflow.models.dagbundle import DagBundleModel
    from airflow.utils.session import create_session

    with create_session() as session:
        session.add(DagBundleModel(name="bench"))
        session.flush()
        session.add_all(DagModel(dag_id=f"rule.{name}", bundle_name="bench") for name in names)


def measure(folder: Path, rules: int, epochs: int) -> list[tuple[str, float]]:
    names = make(folder, rules, epochs)
    asked = Asked(folder, names)
    asked.get("static/floodmark.css")  # the first request creates the application
    first, whole = asked.until_whole("")
    lines = [("all rules, the first time", first), ("… until all of it is there", whole)]
    time.sleep(3)  # until no ledger has changed recently: only then is its content cached
    asked.until_whole("")
    lines.append(("all rules, nothing has changed", asked.get("")[0]))
    first, whole = asked.until_whole(f"dags/rule.{names[0]}")
    lines += [("one rule, the first time", first), ("… until all of it is there", whole)]
    lines.append(("one rule, nothing has changed", asked.get(f"dags/rule.{names[0]}")[0]))
    lines.append(("its charts' data", asked.get(f"dags/rule.{names[0]}/history.json")[0]))
    return lines


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rules", type=int, default=200)
    options.add_argument("--epochs", type=int, default=10_000)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        lines = measure(Path(folder), given.rules, given.epochs)
    print(f"{given.rules} rules of {given.epochs} epochs each")
    for what, spent in lines:
        short = "" if what.startswith("…") or spent < AIM else "  (over the aim)"
        print(f"  {what:<34} {spent:6.2f} s{short}")


if __name__ == "__main__":
    main()
