"""``tileseer run``: call Snakemake with the view ``tileseer``."""

import argparse
import importlib.util
import os
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

from tileseer.cli import targets
from tileseer.core import places
from tileseer.core.errors import UserError, is_it, shown
from tileseer.core.reruns import NOT_WRITABLE
from tileseer.core.yaml_files import parse_yaml
from tileseer.data.recordings import refusal, way_to_models
from tileseer.facts.config import Config, check, read_config_file
from tileseer.facts.names import ARCH_PATTERN, arch_hint, arch_meant
from tileseer.libraries.library import INSTALLED, Installed
from tileseer.libraries.registry import examples, installed_words
from tileseer.measure.harness.telemetry import DRIVERS, missing_driver

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


SNAKEMAKE = sys.executable, "-m", "snakemake"
CONFIG_FILE, PROFILES = Path("config/config.yaml"), Path("profiles")
COUNTS = {"--cores": "all", "-c": "all", "--jobs": "unlimited", "-j": "unlimited"}
"""Options of Snakemake that take a number, and the word instead; it waits without end for no core."""
EXECUTOR = "snakemake_executor_plugin_"
"""How the modules of Snakemake's executors begin."""
USUAL = {
    "--cores", "--config", "--configfile", "--configfiles", "--dry-run", "--directory", "--forceall", "--forcerun",
    "--jobs", "--keep-going", "--profile", "--quiet", "--rerun-incomplete", "--unlock", "--workflow-profile",
}  # fmt: skip
"""Options of Snakemake that are known without asking it."""
CONFIG_FILES, CONFIG_VALUES = ("--configfile", "--configfiles"), ("--config", "-C")
TAKE_RULES = ("--until", "-U", "--omit-from", "-O", "--forcerun", "-R", "--allowed-rules")
"""Options that take names of rules, or files."""
ELSEWHERE = {
    "-n", "--dry-run", "--unlock", "--lint", "--executor", "-e", "--profile", "--workflow-profile", *TAKE_RULES
}  # fmt: skip
"""Options with which a run measures nothing, or not on this machine."""
TAKE_VALUES = {
    **dict.fromkeys(CONFIG_FILES, "FILE"),
    **dict.fromkeys(CONFIG_VALUES, "SECTION='{FIELD: VALUE}'"),
    **dict.fromkeys(TAKE_RULES, "STAGE"),
    **dict.fromkeys(("--profile", "--workflow-profile", "--directory", "-d"), "FOLDER"),
}
"""Options that Snakemake answers with its whole usage, or with nothing, where their value is missing."""
SNAKEFILES = "Snakefile", "snakefile", "workflow/Snakefile", "workflow/snakefile"
HARDWARE = Path("config/hardware.yaml")
_MODELS = re.compile(rf"results/models/({ARCH_PATTERN})/?")


def _with_options(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the option that each word stands behind, and the word; of an option itself what ``=`` gives it, or ""."""
    option = ""
    for word in words:
        if word.startswith("-") and not word[1:].isdigit():
            option, _, word = word.partition("=")
        yield option, word
        if word and option not in (*CONFIG_FILES, *CONFIG_VALUES, *TAKE_RULES):
            option = ""


def _refuse_mistakes(arch: str | None, words: Sequence[str]) -> None:
    """Raise a ``UserError`` for words that Snakemake answers with a traceback, or with nothing that helps."""
    if arch is not None and arch not in installed_words() and not re.fullmatch(ARCH_PATTERN, arch):
        if re.search("[/,]", arch):
            raise UserError(f"--arch: {shown(arch)}: give one arch; files of several are words without --arch")
        near = is_it(arch, (*installed_words(), *Config().replays), 0.6 if arch_meant(arch) is None else 0.75)
        raise UserError(f"--arch: {shown(arch)} is no arch{near or f'; {arch_hint(arch)}'}")
    named = any(word.startswith(("-s", "--snakefile")) for word in words)
    if not os.access(".", os.W_OK):
        raise UserError(f"{Path.cwd()}: cannot be written; {NOT_WRITABLE}")
    if not named and not any(Path(name).exists() for name in SNAKEFILES):
        raise UserError(f"no {SNAKEFILES[0]} is here; go to the folder of the run, or make one: tileseer init FOLDER")
    if short := next((word for word in words if f"-{word}" in {"--arch", "--gpu", *USUAL}), None):
        raise UserError(f"unknown argument '{short}'; is it -{short}?")
    for option, following in pairwise([*words, "-"]):
        if option in TAKE_VALUES and following.startswith("-"):
            raise UserError(f"{option}: what it takes is missing; write {option} {TAKE_VALUES[option]}")
    if sum(word.partition("=")[0] in CONFIG_FILES for word in words) > 1:
        raise UserError("--configfile is given twice, and the last would count alone; write --configfile FILE FILE")
    for option, word in _with_options(words):
        if word and option in CONFIG_FILES:
            if Path(word).is_dir():
                raise UserError(f"{option}: {shown(word)} is a folder; name a file of it")
            if not places.find_file(Path(word)).is_file():
                meant = is_it(word, Path(word).parent.glob("*"), 0.8) or "; put what to make before --configfile"
                raise UserError(f"--configfile: {shown(word)}: there is no such file{meant}")
            read_config_file(places.find_file(Path(word)))
        if word and option in CONFIG_VALUES:
            name, given, text = word.partition("=")
            if not given:
                meant = f"--configfile {word}" if Path(word).is_file() else "--config SECTION='{FIELD: VALUE}'"
                raise UserError(f"{option}: {shown(word)} is no setting; write {meant}")
            if text.count("{") != text.count("}"):
                raise UserError(f"{option}: {name}: the braces do not match; put quotes around them: {name}='{{...}}'")
            parse_yaml(text, f"--config: {name}")
            if "." in name:
                section, _, field = name.partition(".")
                raise UserError(f"--config: {shown(word)}: write --config {section}='{{{field}: {text}}}'")
        if option in COUNTS and word and word != COUNTS[option] and not re.fullmatch("[1-9][0-9]*", word):
            raise UserError(f"{option}: {shown(word)}: give a whole number from 1, or {COUNTS[option]}")
        if option in ("--executor", "-e") and word and word not in (known := _executors()):
            raise UserError(
                f"{option}: {shown(word)} is not installed; there are {', '.join(known)}{is_it(word, known)}"
            )
        if option in ("--directory", "-d") and word and not Path(word).is_dir():
            absent = f"there is no such folder; make one: tileseer init {word}"
            way = "is a file; name a folder" if Path(word).exists() else absent
            raise UserError(f"{option}: {shown(word)}: {way}")
        # Elsewhere a profile may be a name that Snakemake looks for.
        path = option == "--workflow-profile" or (option == "--profile" and "/" in word)
        if path and word not in ("", "none") and not Path(word).is_dir():
            advice = is_it(word, sorted(PROFILES.glob("*/")), 0.4) or f"; those of this folder are in {PROFILES}"
            raise UserError(f"{option}: {shown(word)}: there is no such folder{advice}")
        if option.startswith("--") and option not in USUAL:
            _refuse_unknown_option(option)


def _refuse_targets(words: Sequence[str], archs: Sequence[str], settings: Config) -> None:
    """Raise a ``UserError`` for what cannot be made, or not on this machine; ``archs``: whose models are asked for."""
    given = [(option, word) for option, word in _with_options(words)]
    asked = [word for option, word in given if not option]
    named = [word for option, word in given if option in TAKE_RULES and word]
    targets.refuse_mistakes(asked, named, settings)
    known = (*settings.replays, *settings.benchmark.products)
    for arch in archs:
        if arch not in known and (reason := refusal(settings, arch)):
            raise UserError(f"{arch}: {reason}; {way_to_models(arch, settings)}")
        if arch in settings.replays and settings.benchmark.device in DRIVERS:
            raise UserError(
                f"benchmark.device is {settings.benchmark.device}, but the times of {arch} are replayed from "
                f"{settings.replays[arch]}; leave the device out, or write replays: {{}} to measure them"
            )
    device, measures = settings.benchmark.device, {*archs, *([] if asked else [settings.arch])} - {*settings.replays}
    here = device in DRIVERS and measures and not {option for option, _ in given} & ELSEWHERE
    if here and (missing := missing_driver(device)):
        raise UserError(
            f"benchmark.device is {device}, but this machine shows no GPU: {missing}. Without one: compile with "
            "--until libraries, measure on a cluster (--workflow-profile profiles/slurm), or leave --configfile out"
        )


def _executors() -> list[str]:
    """Return what Snakemake can run jobs by."""
    plugins = (each.name.partition(EXECUTOR)[2] for each in pkgutil.iter_modules() if each.name.startswith(EXECUTOR))
    return ["local", "dryrun", "touch", *(name.replace("_", "-") for name in plugins)]


def _refuse_unknown_option(option: str) -> None:
    """Raise a ``UserError`` for an option that Snakemake answers with its whole usage."""
    usage = subprocess.run([*SNAKEMAKE, "--help"], capture_output=True, text=True, check=False).stdout
    own, known = ("--arch", "--gpu"), re.findall(r"--[a-z][a-z-]*", usage)
    # Snakemake takes a beginning for its option, and not for ours.
    if any(name.startswith(option) for name in known) and not any(name.startswith(option) for name in own):
        return
    section, _, field = option.removeprefix("--").replace("-", "_").partition("_")
    if section in Config.model_fields:
        setting = f"{section}='{{{field or 'FIELD'}: VALUE}}'"
        raise UserError(f"{option}: there is no such option; for a setting write --config {setting}")
    raise UserError(f"{option}: there is no such option{is_it(option, [*own, *sorted(known)])}")


def _with_configuration(words: Sequence[str], path: Path) -> list[str]:
    """Return the words with a configuration before those that they name, which override it."""
    own = [word.removeprefix("--configfile=") for word in words if word.startswith("--configfile=")]
    rest = [word for word in words if not word.startswith("--configfile=")]
    if "--configfile" in rest:
        place = rest.index("--configfile") + 1
        return [*rest[:place], str(path), *own, *rest[place:]]
    return [*rest, "--configfile", str(path), *own]


def _settings(words: Sequence[str]) -> Config:
    """Return the configuration of a call of Snakemake: the folder's, over it files, over these ``--config``."""
    layers = [(str(CONFIG_FILE), read_config_file(path)) for path in [places.find_file(CONFIG_FILE)] if path.is_file()]
    values = []
    for option, word in _with_options(words):
        if word and option in CONFIG_FILES:
            layers.append((word, read_config_file(places.find_file(Path(word)))))
            check(layers[-1][1], word)
        elif word and option in CONFIG_VALUES:
            name, _, text = word.partition("=")
            values.append((option, {name: parse_yaml(text, option)}))
    content: dict[str, Any] = {}
    settings = Config()
    for where, more in (*layers, *values):
        for name, value in more.items():
            both = isinstance(value, dict) and isinstance(content.get(name), dict)
            content[name] = content[name] | value if both else value
        # After each, so that a mistake has the name of its file.
        settings = check(content, where)
    return settings


def run(args: argparse.Namespace, words: Sequence[str]) -> NoReturn:
    """Become Snakemake, with its view ``tileseer``."""
    if importlib.util.find_spec("snakemake") is None:
        raise UserError(f"the packages of the workflow are missing: {places.install('workflow')}")
    _refuse_mistakes(args.arch, words)
    # A folder of `tileseer init` has not all tables of the workflow.
    files = {word for option, word in _with_options(words) if word and option in CONFIG_FILES}
    words = [str(places.find_file(Path(word))) if word in files else targets.relative(word) for word in words]
    models = [match[1] for word in words if (match := _MODELS.fullmatch(word))]
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
    settings = _settings(words)
    _refuse_targets(words, list(archs), settings)
    # Each run ends with a report: who asks for models gets it too.
    published = list(map(settings.published_as, archs)) if archs else []
    made = [path for own in published for path in (f"results/models/{own}", f"results/reports/{own}.html")]
    words = [word for word in words if not _MODELS.fullmatch(word)]
    # Snakemake takes what to make from one place of its words.
    first = next((place for place, word in enumerate(words) if word.startswith("-")), len(words))
    # The jobs call `python`: this one, also where its environment is not active.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    command = [*SNAKEMAKE, "--logger=tileseer", *words[first:], "--", *words[:first], *made]
    os.execve(sys.executable, command, os.environ | {"PATH": path})
