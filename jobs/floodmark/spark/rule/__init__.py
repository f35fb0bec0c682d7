"""A rule's run: its epochs, generations, backfills, and what is checked before."""
