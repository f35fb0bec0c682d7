"""One pass over the rows of an epoch whose results depend on nothing but single rows: READ rides on FILES.

The rows are sorted, counted and hashed on their way into the files of a sink. So the intent's values are known only
once these files are written, which is early enough: no log names them before the intent. All of it happens in the tasks
that write the files, for only there does Spark count each row once, however often a task is tried.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Observation, SparkSession

from floodmark.core.rules.rule import Sink
from floodmark.ledger.delta import tables
from floodmark.spark.fold.fold import Moment
from floodmark.spark.fold.folds import Stateless
from floodmark.spark.read.batch import Batch
from floodmark.spark.rule.checks.partitionvalues import is_checked
from floodmark.spark.rule.generation import Plan, Sites
from floodmark.spark.session.jvm import bytes_read, physical_plan
from floodmark.spark.write.appending import files_for_bytes
from floodmark.spark.write.sites import Site

SHUFFLED = ("delta.autooptimize", "delta.autooptimize.optimizewrite")  # properties by which Delta shuffles a write
ALL_SHUFFLED = "spark.databricks.delta.optimizeWrite.enabled"  # the session's setting


class OnePass:
    """`possible`: whether a rule's new epochs can be read in the pass that writes one of its sinks."""

    def __init__(self, session: SparkSession, plan: Plan, sites: Sites):
        self._session, self._plan, self._sites = session, plan, sites
        self._into = self._measuring_site() if self._is_of_single_rows else None
        self.possible = self._into is not None
        self._planned = False  # whether Spark's plan was seen to be one pass

    @property
    def _is_of_single_rows(self) -> bool:
        rule, plan = self._plan.rule, self._plan
        alone = len(rule.streams) == 1 and not rule.lookups and not rule.rebuild
        return (
            isinstance(plan.fold, Stateless) and alone and not plan.expectations and not is_checked(plan, self._session)
        )

    def _measuring_site(self) -> Site | None:
        sinks = self._plan.sinks
        return next((site for place, site in self._sites.sinks.items() if self._measures(sinks[place], site)), None)

    def _measures(self, sink: Sink, site: Site) -> bool:
        """Whether the write to a sink is one pass over all of the epoch's rows."""
        appends = site.upsert is None and site.span is None and not site.whole
        return appends and self._plan.can_observe(sink) and not self._is_shuffled(site)

    def _is_shuffled(self, site: Site) -> bool:
        table = tables.open_table(site.address)
        properties = {} if table is None else table.metadata().configuration
        said = [value for key, value in properties.items() if key.lower() in SHUFFLED]
        return "true" in [str(self._session.conf.get(ALL_SHUFFLED, "false")), *map(str, said)]

    def results(self, batch: Batch, seen: Observation, at: Moment) -> tuple[DataFrame, dict[str, DataFrame]] | None:
        """The results, and the same by the name of the site whose write measures the batch into `seen`.

        None: Spark would not measure it in one pass.
        """
        assert self._into is not None
        measuring = self._results(batch.observed(seen), at)
        self._planned = self._planned or is_one_pass(physical_plan(measuring))
        if not self._planned:
            return None
        alone = len(self._plan.rule.sinks) == 1
        return measuring if alone else self._results(batch, at), {self._into.name: measuring}

    def _results(self, batch: Batch, at: Moment) -> DataFrame:
        output = self._plan.fold.fold(batch, {}, self._session, at).output
        assert output is not None
        cores = self._session.sparkContext.defaultParallelism
        return output.coalesce(files_for_bytes(bytes_read(output), cores))


def is_one_pass(plan: str) -> bool:
    """Whether Spark measures all rows once, in the tasks that give the results. `plan`: its operators."""
    return plan.count("CollectMetrics") == 1 and "Exchange" not in plan and "Limit" not in plan
