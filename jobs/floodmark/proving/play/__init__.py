"""Play the faults of a proof: real processes over copies of a rule."""
