"""A real driver process that works on many rules in one Spark application, each in a thread of its own.

Usage: python -m support.many {run|reset} ROOT RULE...   (`run` exits with the worst of the rules' exit codes)

RULE:reset resets that rule while the others run.

With SUPPORT_WITHOUT_LOCK set it works beside whoever holds the rules, as where a store gives no lock. SUPPORT_MASTER:
Spark's master in place of local[2].
"""

from __future__ import annotations

import os
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from floodmark.core.lifecycle import cleanup
from floodmark.core.rules.rule import load_rule
from floodmark.errors import FloodmarkError, worst
from floodmark.spark.rule.epochs import epoch
from floodmark.spark.rule.epochs.compaction import compact
from floodmark.spark.rule.run import RuleRun
from floodmark.spark.session import lock
from floodmark.spark.session.session import root_session


def _where_the_name_asks(session: SparkSession, rule: str, *rest: Any) -> None:
    """Compaction after every epoch, but only for rules that are to crash in it: it would cost the others minutes."""
    if "compact" in rule:
        compact(session, rule, *rest)


def main(how: str, root: Path, names: list[str]) -> int:
    cleanup.MAX_FILES = 1
    epoch.compact = _where_the_name_asks
    if os.environ.get("SUPPORT_WITHOUT_LOCK"):
        lock.held = lambda *_: nullcontext()
    names, hows = [name.partition(":")[0] for name in names], [name.partition(":")[2] or how for name in names]
    rules = [load_rule(root / "rules" / f"{name}.yaml", os.environ) for name in names]
    session = root_session(os.environ.get("SUPPORT_MASTER", "local[2]"), rules, backlog=0)

    def one(index: int) -> int:
        run = RuleRun(
            session, rules[index], root / "home", f"many-{os.getpid()}", lambda epoch: print(epoch, flush=True)
        )
        try:
            run.run() if hows[index] == "run" else run.reset(keep_output=False)
        except FloodmarkError as fault:
            traceback.print_exc()
            return fault.exit_code
        print(f"done {names[index]}", flush=True)
        return 0

    with ThreadPoolExecutor(len(rules)) as pool:
        codes = list(pool.map(one, range(len(rules))))
    session.stop()
    return worst(codes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:]))
