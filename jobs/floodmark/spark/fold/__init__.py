"""FOLD: batch and state become output and state changes; one file for each kind of state."""
