"""How far a zone's clocks are ahead of UTC, around the night in which they are turned back."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from floodmark.core.lifecycle.zones import furthest_offset_ms, zone_offset_ms

HOUR = 3_600_000
TURNED = round(datetime(2001, 10, 28, 1, tzinfo=UTC).timestamp() * 1000)  # 03:00 in Berlin becomes 02:00


@pytest.mark.parametrize(("after", "now", "furthest"), [(-1, 2, 2), (0, 1, 2), (HOUR, 1, 2), (2 * HOUR, 1, 1)])
def test_rows_from_before_the_clocks_were_turned_back_are_not_ahead(after: int, now: int, furthest: int) -> None:
    found = [offset("Europe/Berlin", TURNED + after) // HOUR for offset in (zone_offset_ms, furthest_offset_ms)]
    assert found == [now, furthest]
    assert furthest_offset_ms("UTC", TURNED + after) == 0
