"""What spark-submit starts for all but a run: `operate_rule.py backfill RULE --from T --to T`, as `floodmark`."""

from run_rule import main

if __name__ == "__main__":
    main()
