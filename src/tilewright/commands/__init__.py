"""Subcommands of ``tilewright``: a module each, with ``configure(parser)`` and ``run(args) -> int | None``."""
