"""Values of results in JSON, for all kinds of target."""
