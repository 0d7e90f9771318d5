"""``tileseer completion``: the script by which a shell completes subcommands, options and file names."""

import argparse
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
    parser.epilog = "The script is complete in itself: a shell that has read it does not start Python to complete."


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    # Only to print the script: a help text needs no package.
    import shtab

    parser = main.parser(main.COMMANDS)
    for call in options.calls(parser):
        for action in call._actions:
            if action.type is Path:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
    script = shtab.complete(parser, args.shell)
    return options.answer(args, {"shell": args.shell, "script": script}, [script])
