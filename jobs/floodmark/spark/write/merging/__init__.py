"""Merge rows into a table by a key."""
