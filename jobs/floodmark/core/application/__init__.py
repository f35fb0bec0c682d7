"""A Spark application of Floodmark: its settings, the files that it needs, and how it reports its end."""
