"""What the logs of a rule's tables prove, against the ledger."""
