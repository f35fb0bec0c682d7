"""Checks of the ledger alone."""
