"""A certificate of 1,000 epochs takes less than ten seconds of processor time. The tables are real, without Spark."""

from __future__ import annotations

import time
from pathlib import Path

from support.audited import Made

from floodmark.audit.certificate import audit

EPOCHS = 1000


def test_a_thousand_epochs(tmp_path: Path) -> None:
    made = Made(tmp_path, EPOCHS)
    begun = time.process_time()
    found = audit("r", made.home.parent, deep=False)
    spent = time.process_time() - begun
    assert found is not None
    assert (found.verdict, found.findings[:3]) == ("proven", [])
    assert [tally.seen for tally in found.tables.values()] == [EPOCHS] * 3
    assert spent < 10
