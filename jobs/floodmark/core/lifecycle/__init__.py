"""Decides which operations beside its epochs a rule allows, and when. Pure."""
