"""What targets have to hold, by their outboxes and the ledger."""
