"""The crash matrix of one rule: kill real runs on a sample of its input, recover, and compare the results."""
