"""What a rule would do, with nothing written: preview, look-ahead, rehearsal of a replay."""
