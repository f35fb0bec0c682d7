"""Models a rule file as people write it: one model for each part, each checked by itself."""
