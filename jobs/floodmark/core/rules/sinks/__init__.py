"""Defines which results sinks take, and the guarantees they give."""
