"""The commands, one file each. `cli.app` has their order."""
