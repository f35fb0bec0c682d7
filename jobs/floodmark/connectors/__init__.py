"""Connectors: one file for each kind of source or sink, found through the registry."""
