"""Parses a query into a tree and describes its columns and names."""
