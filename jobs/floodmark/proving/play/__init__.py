"""How a proof plays its faults: real processes over copies of a rule."""
