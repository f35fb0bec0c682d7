"""Defines the records of the ledger: its rows, and the head that they add up to."""
