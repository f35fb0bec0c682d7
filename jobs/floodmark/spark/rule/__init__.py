"""A rule's run: its epochs, generations, backfills, and the checks before them."""
