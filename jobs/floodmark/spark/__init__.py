"""The code that runs in Spark: six packages, each importing those after it: look, rule, fold, write, read, session."""
