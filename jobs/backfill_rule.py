"""What spark-submit starts for a backfill: `backfill_rule.py RULE --from T --to T`, as `floodmark backfill`."""

from run_rule import main

if __name__ == "__main__":
    main("backfill")
