"""Iceberg tables: their catalogues, and their columns."""
