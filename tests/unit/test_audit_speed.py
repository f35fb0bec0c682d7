"""A certificate of 1,000 epochs takes less than ten seconds of processor time. The tables are real, without Spark."""

from __future__ import annotations

import time
from pathlib import Path

from support.audited import Made

from floodmark.audit.certificate import audit
from floodmark.audit.effects.moves import replay_log
from floodmark.audit.evidence import Base, File, LogEntry, TableLog

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


def test_many_commits_over_many_files() -> None:
    """Each file is looked up, not all of them for each commit: that took more than a minute."""
    older = {(str(i), ""): File(str(i), 1, 1) for i in range(100_000)}
    entries = (LogEntry(v, added=(File(f"new {v}", 1, 1),), changes=True) for v in range(1, 4_001))
    log = TableLog("t", "id", tuple(entries), checkpoint=Base(0, older), version=4_000)
    begun = time.process_time()
    found = replay_log(log)
    assert time.process_time() - begun < 10
    assert found.files is not None and len(found.files) == 104_000
