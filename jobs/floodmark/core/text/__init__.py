"""Reads the parts of rule files: files, YAML with places, types as text, durations, addresses."""
