"""Rule files: their model, their checks, and conflicts between rules."""
