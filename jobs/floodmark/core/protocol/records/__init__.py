"""The records that the ledger holds: its rows, and what they come to."""
