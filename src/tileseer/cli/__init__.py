"""The command ``tileseer`` and its subcommands."""
