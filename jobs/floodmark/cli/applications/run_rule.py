"""Entry point of spark-submit: `run_rule.py RULE... [--home DIR] [--rules DIR] [--run-id ID]`, as `floodmark run`.

spark-submit's master is used, unless --master or FLOODMARK_MASTER names another.
"""

from __future__ import annotations

import os
import sys


def main(*command: str) -> None:
    if "PYSPARK_GATEWAY_PORT" in os.environ and "FLOODMARK_MASTER" not in os.environ:
        from pyspark import SparkConf, SparkContext

        SparkContext._ensure_initialized()  # the JVM runs already and has spark-submit's configuration
        os.environ["FLOODMARK_MASTER"] = SparkConf().get("spark.master", "local[*]")
    from floodmark.cli import main as floodmark
    from floodmark.core.application.failure import ending

    try:
        floodmark([*command, *sys.argv[1:]])
    except SystemExit as end:
        sys.stdout.flush()
        print(ending(int(end.code or 0)), file=sys.stderr, flush=True)
        raise


if __name__ == "__main__":
    main("run")
