"""Avro's schemas and columns: each from the other, without a JVM."""
