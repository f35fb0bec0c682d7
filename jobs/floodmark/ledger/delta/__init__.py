"""Reads Delta tables without a JVM: logs, files, damage; and syncs them."""
