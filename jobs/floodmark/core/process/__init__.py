"""A rule's Python class: what it declares, read from its text, and how it is called."""
