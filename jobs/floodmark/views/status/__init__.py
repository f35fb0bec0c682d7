"""Where rules stand, and how fresh they are."""
