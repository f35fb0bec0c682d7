"""Outboxes and their relays: what epochs have committed leaves for targets outside of the lake, in order."""
