"""Decides what a relay ships, in which order, and whether a target's position can be trusted."""
