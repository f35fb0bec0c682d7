"""Show what a rule would do, without writing: preview, look-ahead, rehearsal of a replay."""
