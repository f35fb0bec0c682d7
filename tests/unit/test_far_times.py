"""Times of years that Python lacks: every command that shows rows shows these too."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from support.flow import STATELESS, Flow

from floodmark.core.cases.casevalues import text_of_value
from floodmark.core.lifecycle.zones import earliest_moment, far_text, micros_of_text
from floodmark.core.text.ddl import Type
from floodmark.ledger.delta.datafiles import query
from floodmark.reading import rows_of
from floodmark.spark.fold.process import turns
from floodmark.views.contents.tablerows import plain
from floodmark.views.formats import iso

MICROS_AS_MILLIS, BEFORE_CHRIST, LAST = 978_307_201_000_000_000, -99_999_999_999_999_999, 2**63 - 1
SHOWN = {
    MICROS_AS_MILLIS: "+32971-04-28T00:16:40",
    BEFORE_CHRIST: "-1199-02-15T14:13:20.000001",
    LAST: "+294247-01-10T04:00:54.775807",
    978_307_201_000_000: "2001-01-01T00:00:01",
}


def test_a_moment_of_any_year_has_its_text() -> None:
    assert {at: far_text(at) for at in SHOWN} == SHOWN
    assert far_text(-62_167_219_200_000_000) == "0000-01-01T00:00:00"
    assert iso(MICROS_AS_MILLIS) == "+32971-04-28T00:16:40Z"


@pytest.mark.parametrize("zone", ["UTC", None])
@pytest.mark.parametrize("at", SHOWN)
def test_a_table_shows_times_of_every_year(tmp_path: Path, at: int, zone: str | None) -> None:
    time, value = pa.timestamp("us", zone), SHOWN[at] + ("Z" if zone else "")
    write_deltalake(str(tmp_path), pa.table({"at": pa.array([0, at, None], time), "k": ["a", "b", "c"]}))
    found = [plain(row) for row in query(DeltaTable(str(tmp_path)), "SELECT * FROM t ORDER BY k")]
    first = "1970-01-01T00:00:00" + ("Z" if zone else "")
    assert found == [{"at": first, "k": "a"}, {"at": value, "k": "b"}, {"at": None, "k": "c"}]


def test_the_rows_of_a_query_hold_such_times_within_others() -> None:
    time, day = pa.timestamp("us", "UTC"), pa.date32()
    struct = pa.struct([("d", day), ("n", pa.int32())])
    columns = {
        "l": pa.array([[MICROS_AS_MILLIS, None]], pa.list_(time)),
        "s": pa.array([{"d": 5_000_000, "n": 1}], struct),
        "m": pa.array([[("a", MICROS_AS_MILLIS)]], pa.map_(pa.string(), pa.timestamp("ms"))),
        "d": pa.array([-5_000_000], day),
    }
    [row] = rows_of(pa.table(columns))
    thousandfold = far_text(MICROS_AS_MILLIS * 1000)
    assert row == [
        ["+32971-04-28T00:16:40Z", None],
        {"d": "+15659-07-15", "n": 1},
        [("a", thousandfold)],
        "-11720-06-19",
    ]


def test_a_case_compares_such_times_as_text() -> None:
    text = "+32971-04-28T00:16:40Z"
    assert text_of_value(Type("timestamp"), text, ZoneInfo("Europe/Berlin")) == text


def test_the_text_of_an_event_time_leads_back_to_it(place: Path) -> None:
    rule = Flow(place, sql=STATELESS, settings={"timezone": "Europe/Berlin"}).rule()
    assert [micros_of_text(text + "Z", rule) for text in SHOWN.values()] == list(SHOWN)
    assert micros_of_text("-1199-02-15T14:13:20", rule) == BEFORE_CHRIST - 1


def test_any_error_of_a_case_is_that_cases_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from floodmark.testing import playing

    def broken(*_: Any) -> None:
        raise OverflowError("too far")

    monkeypatch.setattr(playing, "_Play", broken)
    case = cast("Any", SimpleNamespace(written=SimpleNamespace(epochs=[])))
    result = playing.play(cast("Any", None), case, tmp_path)
    assert not result.passed
    assert result.text() == "OverflowError: too far"


def test_each_day_that_a_column_can_hold_is_named_in_the_reason_of_a_dead_row() -> None:
    """A time in microseconds ends with the year 294247."""
    shown = [turns._shown(pa.array([days], pa.int32()).cast(pa.date32())) for days in (4_000_000, 2**31 - 1, -(2**31))]
    assert shown == ["+12921-08-18T00:00:00", "+5881580-07-11T00:00:00", "-5877641-06-23T00:00:00"]


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/New_York", "Europe/Berlin", "Pacific/Apia"])
@pytest.mark.parametrize("date", ["2026-03-08", "2026-03-29", "2026-10-25", "2011-12-30"])
def test_no_moment_before_the_earliest_shows_a_time_or_a_later_one(zone: str, date: str) -> None:
    """Also where the zone's clock is put forward or back, in half hours around that."""
    epoch, day = datetime(1970, 1, 1), datetime.fromisoformat(date)
    moments = [day.replace(tzinfo=UTC) + timedelta(minutes=30 * by) for by in range(-96, 192)]
    shown = {at: at.astimezone(ZoneInfo(zone)).replace(tzinfo=None) for at in moments}
    for by in range(-24, 72):
        local = day + timedelta(minutes=30 * by)
        found = earliest_moment((local - epoch) // timedelta(microseconds=1), zone)
        first = min(at.replace(tzinfo=None) for at, time in shown.items() if time >= local)
        assert found <= (first - epoch) // timedelta(microseconds=1)
        assert epoch + timedelta(microseconds=found) == first or local not in shown.values()


def test_of_a_year_that_python_lacks_the_earliest_moment_is_a_day_before() -> None:
    far = 400 * 366 * 86_400_000_000 * 100
    assert earliest_moment(far, "Asia/Tokyo") == far - 86_400_000_000
