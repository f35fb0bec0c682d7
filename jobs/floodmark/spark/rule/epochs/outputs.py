"""What an epoch writes to each of the rule's own tables and sinks, and what consoles show."""

from __future__ import annotations

from collections.abc import Iterator

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from floodmark.connectors.ports import console
from floodmark.core.protocol.entry import Entry
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.rows import total
from floodmark.core.rules.kinds import sink_can
from floodmark.core.rules.rule import Sink
from floodmark.spark.fold.fold import Folded
from floodmark.spark.read.batch import DEAD, LATE, Batch, stamped, united
from floodmark.spark.rule.generation import Plan, Sites
from floodmark.spark.session.jvm import bytes_read, materialised
from floodmark.spark.session.session import cores
from floodmark.spark.write.appending import files_for
from floodmark.spark.write.sinkframes import rows_for_sink
from floodmark.spark.write.sites import Work


class Outputs:
    """The outputs of one epoch. `head`: the ledger's, before it."""

    def __init__(self, session: SparkSession, plan: Plan, sites: Sites, head: Head):
        self._session, self._plan, self._sites, self.head = session, plan, sites, head

    def results(self, frame: DataFrame, batch: Batch) -> DataFrame:
        """The results; if several sinks get them, the work up to the last shuffle is done only once."""
        if not self._plan.fold.tables:  # no shuffle gathers the rows into few files
            files = files_for(total(batch.counts).folded, bytes_read(frame), cores(self._session))
            frame = frame.coalesce(files)
        return frame if len(self._plan.rule.sinks) == 1 else materialised(frame, self._session)

    def own_works(self, batch: Batch, folded: Folded, entry: Entry) -> list[Work]:
        """The writes to the rule's own tables."""
        counts = total(batch.counts)
        late = self._quarantined(batch, (LATE,), counts.late if self._plan.rule.late == "keep" else 0, entry)
        dead = self._dead(batch, folded, entry)
        state = [Work(site, self._state_changes(name, batch, folded)) for name, site in self._sites.state.items()]
        return [Work(self._sites.late, late), Work(self._sites.dead, dead), *state]

    def _dead(self, batch: Batch, folded: Folded, entry: Entry) -> DataFrame | None:
        """Rows that READ found dead, and rows that the class rejected."""
        offsets = self._offsets(entry)
        found = self._quarantined(batch, DEAD, total(batch.counts).dead, entry)
        frames = [] if found is None else [found]
        for name, rejected in folded.rejected.items():
            rows = stamped(rejected.rows, self.head.epoch + 1, name, offsets[name])
            frames.append(rows.coalesce(files_for(rejected.count)))
        return united(frames) if frames else None

    def _offsets(self, entry: Entry) -> dict[str, str]:
        return dict(zip(self._plan.rule.streams, entry.offsets, strict=True))

    def _quarantined(self, batch: Batch, kinds: tuple[int, ...], rows: int, entry: Entry) -> DataFrame | None:
        if not rows:
            return None
        return batch.quarantined(kinds, self.head.epoch + 1, self._offsets(entry)).coalesce(files_for(rows))

    def _state_changes(self, name: str, batch: Batch, folded: Folded) -> DataFrame | None:
        kept = folded.changes.get(name)
        return None if kept is None else kept.coalesce(files_for(total(batch.counts).folded))

    def for_sinks(self, output: DataFrame | None, seen: Observation) -> list[tuple[Work, Sink]]:
        """One piece of work for each sink that keeps what it gets. At qos 0 it gets the first attempt's rows alone.

        `seen`: counts the results on their way to one sink, if no sink gets all of them.
        """
        by_address, first = self._plan.sinks, self._is_first
        asked = [(site, by_address[address]) for address, site in self._sites.sinks.items()]
        asked = [(site, sink) for site, sink in asked if first or sink.qos > 0]
        if output is None and self._plan.rule.rebuild:  # existing rows are removed even without results
            output = self._session.createDataFrame([], self._plan.output)
        frames = [output] * len(asked)
        counting = self._counting([sink for _, sink in asked])
        if output is not None and counting is not None:
            frames[counting] = output.observe(seen, F.count(F.lit(1)).alias("rows"))
        return [
            (Work(site, None if frame is None else self._rows_for(sink, frame)), sink)
            for (site, sink), frame in zip(asked, frames, strict=True)
        ]

    @property
    def _is_first(self) -> bool:
        """Whether this is the epoch's first attempt."""
        return self.head.attempt <= 1

    def _counting(self, sinks: list[Sink]) -> int | None:
        """The position of a sink on the way to which results are counted; None: not needed, or there is none. Writes
        in a separate session cannot be observed."""
        if any(sink.gets_all for sink in sinks):
            return None
        return next((i for i, sink in enumerate(sinks) if self._tells(sink)), None)

    def _tells(self, sink: Sink) -> bool:
        return sink_can(sink.kind).table and not self._plan.has_instants_in_paths(sink)

    def _rows_for(self, sink: Sink, output: DataFrame) -> DataFrame:
        return rows_for_sink(output, self._plan.sink_columns(sink), self.head.generation, self.head.epoch + 1)

    def rows(
        self, sinks: list[tuple[Work, Sink]], got: dict[str, int], output: DataFrame | None, seen: Observation
    ) -> int:
        """How many results the epoch has: as many as a sink got that gets all, or as counted on the way to another."""
        if output is None:
            return 0
        whole = [work.site.name for work, sink in sinks if sink.gets_all]
        if whole:
            return max(got[name] for name in whole)
        return output.count() if self._counting([sink for _, sink in sinks]) is None else _observed_rows(seen, output)

    def shown(self, output: DataFrame | None, rows: int) -> Iterator[console.Excerpt]:
        """What each console shows."""
        for sink in self._plan.rule.sinks:
            if output is not None and not sink_can(sink.kind).stores_rows and (self._is_first or sink.qos > 0):
                taken_here = self._rows_for(sink, output)
                yield console.excerpt_of(taken_here, taken_here.count() if sink.where else rows)


def _observed_rows(seen: Observation, output: DataFrame) -> int:
    """How many results were counted. If Spark finds that none can reach the sink, it prunes the counter."""
    try:
        return int(seen.get["rows"])
    except Py4JJavaError:  # no row to convert
        return output.count()
