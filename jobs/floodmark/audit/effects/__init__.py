"""Checks of the tables' logs against the ledger."""
