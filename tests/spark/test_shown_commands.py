"""The commands that pages show are run, page by page, by bash: over copies of a rule that has already run.

`tests/airflow/test_tutorial.py` runs the tutorial, `tests/services/test_installed.py` the commands of an installed
package, `tests/recovery/test_proofs.py` those of `prove`, `test_shown_systems.py` those that need a server of another
system. Clusters and containers are tried by the services' tests.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from support.shown import SYSTEMS, call, without_comment, write_rule
from support.snippets import CHECKOUT, Snippet, of_page, pages

pytestmark = pytest.mark.prove
PLACES = ("concepts", "guide", "reference")
# Whose commands need another machine, or are run by tests of their own.
ELSEWHERE = {"completion.md", "commands.md", "faults.md", "prove.md", *SYSTEMS}
RULE = """\
rule: NAME
streams:
  flights:
    delta: ${LAKE}/flights
    event_time: date
    lateness: 30 minutes
    expect: {seen: {check: "coalesce(raw, raw_delay, passenger) IS NULL OR TRUE", on_fail: warn}}
lookups:
  airports: {delta: "${LAKE}/airports"}
sql: |
  SELECT window.start AS hour, origin, count(*) AS flights, avg(delay) AS mean_delay
  FROM flights LEFT JOIN airports ON origin = iata
  GROUP BY window(date, '1 hour'), origin
sinks:
  - delta: ${LAKE}/NAME
spark: {shuffle_partitions: 2}
airflow: {tags: [nightly]}
"""
CASES = """\
schema:
  flights: "date TIMESTAMP, origin STRING, delay DOUBLE, raw STRING, raw_delay STRING, passenger STRING"
  airports: iata STRING, city STRING
cases:
  - case: a late flight is kept
    epochs:
      - input: {flights: [{date: "2001-01-01T10:00", origin: SFO}]}
        expect: {sink: []}
      - input: {flights: [{date: "2001-01-01T09:00", origin: SFO}]}
        expect: {late: [{date: "2001-01-01T09:00", origin: SFO}]}
"""
NAMES = ("departure_delays", "unique_clicks", "flights_clean")
# Nothing is open in the copies; what `abandon` does to an open epoch, tests/recovery/test_abandon_kills.py tries.
CODES = {"abandon": 2}
AT = datetime(2001, 1, 1, tzinfo=UTC)
WORK = "work"
ASKING = ("abandon", "adopt", "drop", "forget", "maintain", "rename", "reset", "retire", "recheck")


def shown() -> list[Path]:
    """The pages of guides, concepts and reference that show a command of Floodmark's."""
    places = (page for page in pages() if page.parent.name in PLACES and page.name not in ELSEWHERE)
    return [page for page in places if any(blocks(page))]


def blocks(page: Path) -> Iterator[Snippet]:
    yield from (one for one in of_page(page) if one.kind == "bash" and re.search(r"^floodmark ", one.text, re.M))


@pytest.fixture(scope="module")
def ready(root: Path) -> Path:
    """A folder whose rules have run twice: with rows in the sinks, a late row and a dead one.

    Each page works in `WORK`, for the ledgers name the tables there.
    """
    folder = root / WORK
    (folder / "rules" / "tests").mkdir(parents=True)
    (folder / "env").mkdir()
    (folder / "env" / "prod.env").write_text("LAKE=lake/prod\n")
    for name in NAMES:
        (folder / "rules" / f"{name}.yaml").write_text(RULE.replace("NAME", name))
    (folder / "rules" / "tests" / "departure_delays.yaml").write_text(CASES)
    write_deltalake(str(folder / "lake" / "airports"), pa.table({"iata": ["SFO"], "city": ["San Francisco"]}))
    for hours in ([0, 1, 30], [0.5, None, 31]):
        arrive(folder, [None if one is None else AT + timedelta(hours=one) for one in hours])
        code, said = call(folder, "floodmark run --all --parallel 3")
        assert code == 0, said
    return folder.rename(root / "ready")


def arrive(folder: Path, times: list[datetime | None]) -> None:
    rows: list[dict[str, Any]] = [
        {"date": at, "origin": "SFO", "delay": 1.0, "raw": " 1 ", "raw_delay": "1", "passenger": "p-4711"}
        for at in times
    ]
    texts = [(name, pa.string()) for name in ("origin", "raw", "raw_delay", "passenger")]
    schema = pa.schema([("date", pa.timestamp("us", tz="UTC")), ("delay", pa.float64()), *texts])
    write_deltalake(str(folder / "lake" / "flights"), pa.Table.from_pylist(rows, schema=schema), mode="append")


@pytest.fixture(scope="module")
def dry() -> set[str]:
    """The commands that were run: a dry run changes nothing, and one of its kind is enough for all pages."""
    return set()


@pytest.mark.parametrize("page", shown(), ids=lambda page: page.name)
def test_the_commands_of_a_page_work(page: Path, ready: Path, root: Path, dry: set[str]) -> None:
    folder = root / WORK
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ready, folder)
    for one in of_page(page):
        if one.kind == "yaml" and one.text.startswith("rule: delays\n"):  # which the page of files shows and runs
            write_rule(one, folder / "rules")
    for one in blocks(page):
        if "mkdir " in one.text:
            code, said = call(folder, one.text)
            assert code == 0, f"{one}: exit code {code} of {said}"
            continue
        for line in one.text.replace("\\\n", " ").splitlines():
            if line.startswith("floodmark ") and not line.startswith("floodmark prove "):
                command = confirmed(line.replace(" RULE", " departure_delays"))
                if "--dry-run" in command and command in dry:
                    continue
                dry.add(command)
                code, said = call(folder, command)
                assert code == CODES.get(command.split()[1], 0), f"{one}: exit code {code} of {said}"


def test_the_readmes_first_rule_gives_what_the_readme_shows(place: Path) -> None:
    """From `floodmark init` on; the tutorial's test runs the set-up before it."""
    readme = list(of_page(CHECKOUT / "README.md"))
    first = next(one for one in readme if "floodmark init" in one.text)
    code, said = call(place, first.text[first.text.index("floodmark init") :])
    assert code == 0, said
    runs, shows = (one.text for one in readme if one.line > first.line and one.kind in ("bash", "text"))
    code, said = call(place / "mine", runs)
    assert code == 0 and shows.strip() in said, said


def confirmed(line: str) -> str:
    """The command with the answer of its reader, if it asks."""
    command = without_comment(line)
    asks = command.split()[1] in ASKING
    return f"{command} --yes" if asks and "--yes" not in command and "--dry-run" not in command else command
