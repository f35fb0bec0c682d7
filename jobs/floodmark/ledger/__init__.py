"""The ledger's one client, a rule's home and locks, upkeep; and Delta tables without a JVM."""
