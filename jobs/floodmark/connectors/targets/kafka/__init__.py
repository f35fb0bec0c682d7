"""Kafka as a target."""
