"""What the ledger proves by itself."""
