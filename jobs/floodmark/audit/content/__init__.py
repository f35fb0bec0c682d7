"""Checks of the tables' files against the ledger's digests."""
