"""``tileseer completion``: the script by which a shell completes subcommands, options and file names."""

import argparse
from collections.abc import Iterator
from pathlib import Path

from tileseer.cli import main, options

SHELLS = ("bash", "zsh", "fish")
EXAMPLES = (
    "tileseer completion bash > ~/.local/share/bash-completion/completions/tileseer",
    'tileseer completion zsh > "${fpath[1]}/_tileseer"',
    "tileseer completion fish > ~/.config/fish/completions/tileseer.fish",
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("shell", choices=SHELLS, help="the shell that reads the script")
    options.add_json(parser)
    parser.epilog = "The script is complete in itself: a shell that has read it does not start Python to complete."


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    # Only to print the script: a help text needs no package.
    import shtab

    parser = main.parser(main.COMMANDS)
    for action in _paths(parser):
        action.complete = shtab.FILE  # type: ignore[attr-defined]
    script = shtab.complete(parser, args.shell)
    options.answer(args, {"shell": args.shell, "script": script}, [script])
    return 0


def _paths(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Every argument of all subcommands that is a path."""
    for action in parser._actions:
        if action.type is Path:
            yield action
        elif isinstance(action, argparse._SubParsersAction):
            for subparser in action.choices.values():
                yield from _paths(subparser)
