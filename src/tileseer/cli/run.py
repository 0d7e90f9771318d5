"""``tileseer run``: call Snakemake with the view ``tileseer``."""

import argparse
import importlib.util
import os
import pkgutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from tileseer.cli import run_words, targets
from tileseer.core import places, reruns
from tileseer.core.errors import UserError
from tileseer.libraries.library import INSTALLED, Installed
from tileseer.libraries.registry import examples, installed_words

EXAMPLES = (
    "tileseer run",
    "tileseer run --arch gfx950_mi355x",
    "tileseer run results/models/sm_90 --cores 4",
    *examples("run"),
    "tileseer run -n",
)
TAKES_MORE = True
"""What the parser does not know is Snakemake's."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.usage = "tileseer run [--arch ARCH] [words of snakemake]"
    words = " or ".join(installed_words())
    meaning = f"make the models and the report of this arch (default: that of the config); {words}: of the times that "
    parser.add_argument("--arch", help=f"{meaning}are installed on this machine, of every GPU")
    parser.add_argument("--gpu", default="", help=f"with --arch {words}, only this GPU, such as gfx942")
    parser.epilog = (
        "Every other word is Snakemake's: files to make, -n to list the jobs, --cores 4, --configfile FILE. "
        "The profile of the folder (profiles/default) has the rest."
    )


HARDWARE = Path("config/hardware.yaml")


def _with_configuration(words: Sequence[str], path: Path) -> list[str]:
    """Return the words with a configuration before those that they name, which override it."""
    own = [word.removeprefix("--configfile=") for word in words if word.startswith("--configfile=")]
    rest = [word for word in words if not word.startswith("--configfile=")]
    if "--configfile" in rest:
        place = rest.index("--configfile") + 1
        return [*rest[:place], str(path), *own, *rest[place:]]
    return [*rest, "--configfile", str(path), *own]


def run(args: argparse.Namespace, words: Sequence[str]) -> NoReturn:
    """Become Snakemake, with its view ``tileseer``."""
    if importlib.util.find_spec("snakemake") is None:
        raise UserError(f"the packages of the workflow are missing: {places.install('workflow')}")
    run_words.refuse_mistakes(args.arch, words)
    # A folder of `tileseer init` has not all tables of the workflow.
    given = list(run_words.with_options(words))
    configs = {word for option, word in given if word and option in run_words.CONFIG_FILES}
    words = [str(places.find_file(Path(word))) if word in configs else targets.relative(word) for word in words]
    models = [match[1] for word in words if (match := run_words.MODELS.fullmatch(word))]
    own = [args.arch] if args.arch else []
    if library := installed_words().get(args.arch):
        found: Installed = pkgutil.resolve_name(library.installed)(INSTALLED / library.name, args.gpu, HARDWARE)
        print(*found.said, sep="\n", file=sys.stderr, flush=True)
        own, words = list(found.archs), _with_configuration(words, found.config)
    elif args.gpu:
        raise UserError(f"--gpu: is for --arch {' or '.join(installed_words())}; an arch names its GPU")
    elif models and args.arch not in (None, *models):
        raise UserError(f"--arch {args.arch} and results/models/{models[0]} name two archs; leave one out")
    archs = dict.fromkeys([*own, *models])
    settings = run_words.settings_of(words).located(str(places.workflow_folder()))
    configured = any(option in run_words.CONFIG_VALUES and word.startswith("arch=") for option, word in given)
    if configured and archs and settings.arch not in archs:
        raise UserError(f"--config arch={settings.arch} and {next(iter(archs))} are two archs; leave one out")
    targets.refuse_mistakes(words, list(archs), settings)
    if not {option for option, _ in given} & {"-n", "--dry-run", "--directory", "-d"}:
        reruns.refuse_held(Path("results"))
    about_archs = list(archs) or [settings.arch]
    damaged = targets.damaged(settings, about_archs)
    made_again = [f"note: {fault}; it is made again" for fault in damaged.values()]
    for line in (*run_words.taken_back(words), *targets.notes_on(settings, about_archs), *made_again):
        print(line, file=sys.stderr, flush=True)
    # Each run ends with a report: who asks for models gets it too.
    published = list(map(settings.published_as, archs)) if archs else []
    to_make, others = run_words.split_targets(words)
    others = run_words.with_forced(others, list(damaged))
    files = [word for word in to_make if not run_words.MODELS.fullmatch(word)]
    files += [path for own in published for path in (f"results/models/{own}", f"results/reports/{own}.html")]
    # The jobs call `python`: this one, also where its environment is not active.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    command = [*run_words.SNAKEMAKE, "--logger=tileseer", *others, "--", *files]
    # Of several archs, each is checked when its jobs are planned.
    about = {run_words.ARCH_OF_RUN: next(iter(archs))} if len(archs) == 1 else {}
    os.execve(sys.executable, command, os.environ | {"PATH": path} | about)
