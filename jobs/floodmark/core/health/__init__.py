"""Decides the findings of `floodmark doctor` from observed facts; it does not inspect the machine itself."""
