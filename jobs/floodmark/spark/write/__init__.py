"""WRITE and VERIFY: write every table of a rule once for each epoch."""
