"""How Spark plans what an epoch reads from its sources."""
