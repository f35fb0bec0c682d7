"""Comparison and verdict of a proof."""
