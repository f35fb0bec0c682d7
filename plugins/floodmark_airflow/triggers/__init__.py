"""What a manual trigger can do: one file each, and the form that offers it."""
