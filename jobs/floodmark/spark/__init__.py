"""What runs in Spark: six rooms, each of which imports those after it: look, rule, fold, write, read, session."""
