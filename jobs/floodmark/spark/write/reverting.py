"""One commit that undoes other commits' changes to a Delta table's files, under an app transaction of Delta's own.

It removes the files that they added. It restores the files that they removed, as the log had them before: with
statistics, deletion vector and row ids. No file is written.
"""

from __future__ import annotations

from collections.abc import Iterator

from floodmark.core.lifecycle.abandoning import SinkState
from floodmark.core.protocol.presence import file_id
from floodmark.core.text.tablenames import about_named
from floodmark.errors import HistoryGone
from floodmark.spark.write.rewriting import LiveFile, Rewriting


class Reverting(Rewriting):
    """A transaction on a sink, started at its newest version, that takes an epoch back as the sink's app."""

    def undo(self, seen: SinkState) -> None:
        """Raises HistoryGone if a file to remove or to restore does not exist."""
        if seen.net.is_nothing:
            return
        self._txn.readWholeTable()
        going = {file_id(file.said): file for file in self._live_files()}
        coming = {file_id(file.said): file for file in self._before(seen.commits[0])} if seen.net.removed else {}
        lacking = [*(seen.net.added.keys() - going.keys()), *(seen.net.removed.keys() - coming.keys())]
        if lacking:
            raise HistoryGone(
                about_named(
                    seen.name,
                    f"expected the file {lacking[0][0]}, which the epoch's commit {seen.commits[0]} moved, found it "
                    "in no version of the table. Restore the table's log, or start over with `floodmark reset`",
                )
            )
        gone = self._removed(going[key] for key in sorted(seen.net.added))
        back = self._deltas(_added(coming[key]) for key in sorted(seen.net.removed))
        self._files = gone.concat(self._seq_of(back))

    def _before(self, commit: int) -> Iterator[LiveFile]:
        """The files of the table as it was before a commit."""
        none, log = self._class("scala.Option").empty(), self._txn.deltaLog()
        return self._live(self._all_of(log.getSnapshotAt(commit - 1, none, none, False)))


def _added(file: LiveFile) -> LiveFile:
    """The file, added with its rows."""
    return LiveFile({**file.said, "dataChange": True})
