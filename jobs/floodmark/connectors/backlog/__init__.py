"""Input that is not folded yet: whether there is any, how much an epoch takes, for how long its source keeps it."""
