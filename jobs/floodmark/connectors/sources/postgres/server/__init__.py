"""Asks a PostgreSQL server, and keeps a replication slot there."""
