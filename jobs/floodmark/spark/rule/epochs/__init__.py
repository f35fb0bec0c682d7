"""A rule's epochs: Spark plans them, and they are folded one by one until no input is left."""
