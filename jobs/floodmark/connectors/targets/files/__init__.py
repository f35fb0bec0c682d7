"""A folder of files as a target."""
