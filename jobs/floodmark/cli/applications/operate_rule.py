"""Entry point of spark-submit for all commands but a run: `operate_rule.py backfill RULE --from T --to T`."""

from floodmark.cli.applications.run_rule import main

if __name__ == "__main__":
    main()
