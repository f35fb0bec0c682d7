"""Backfills: compute an interval again, and replace it in the sinks."""
