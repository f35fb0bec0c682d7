"""The ledger's only client, a rule's home and locks, upkeep; and access to Delta tables without a JVM."""
