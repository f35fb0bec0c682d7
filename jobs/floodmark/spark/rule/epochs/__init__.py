"""A rule's epochs: planned by Spark, folded one by one, until nothing is left."""
