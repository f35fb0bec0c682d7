"""Kafka as a source: topics whose records are rows."""
