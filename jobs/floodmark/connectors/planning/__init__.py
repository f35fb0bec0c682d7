"""How Spark plans what an epoch reads of its sources."""
