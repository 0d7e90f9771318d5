"""The command ``tileseer``: one module a subcommand."""
