"""The crash matrix of one rule: real kills of real runs on a sample of its input, and what is left then, compared."""
