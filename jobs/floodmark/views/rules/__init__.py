"""The rule files of a folder: dependency graph, environments, and the origin of each value."""
