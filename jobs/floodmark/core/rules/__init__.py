"""Rule files: their model, what is checked in them, and what several have to agree on."""
