"""The words of a run, which are Snakemake's: what they mean, and mistakes that it answers with nothing that helps."""

import os
import pkgutil
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from tileseer.cli.run_resources import refuse_resource
from tileseer.core import places
from tileseer.core.errors import INTERRUPTED, UserError, is_it, shown
from tileseer.core.reruns import NOT_WRITABLE
from tileseer.core.yaml_files import parse_yaml, read_yaml
from tileseer.facts.config import Config, check, read_config_file
from tileseer.facts.names import ARCH_PATTERN, arch_hint, arch_meant
from tileseer.libraries.registry import installed_words

START = f"""
import signal, sys, time
last = [time.monotonic() - 9]
def interrupt(*_):
    # `timeout` and shells may send it to a process and to its group.
    if time.monotonic() - last[0] > 2:
        last[0] = time.monotonic()
        raise KeyboardInterrupt
signal.signal(signal.SIGTERM, interrupt)
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, interrupt)
try:
    from snakemake.cli import main
    main()
except KeyboardInterrupt:
    print("interrupted: no job was at work; the same command goes on from there", file=sys.stderr)
    sys.exit({INTERRUPTED})
"""
"""Snakemake, which Ctrl-C and SIGTERM end in one line also while it loads and plans. It has the code of the Snakefile's
folder, which need not be this one."""
SNAKEMAKE = sys.executable, "-c", START
PARSE = (
    "import sys; from snakemake.cli import get_argument_parser, parse_args; "
    "print(get_argument_parser().format_help()); parse_args(sys.argv[1:])"
)
"""What has Snakemake say what it thinks of words and of profiles."""
ARCH_OF_RUN = "TILESEER_ARCH"
"""The variable that tells the workflow which arch a run is about, beside the configured one."""
CONFIG_FILE, PROFILES = Path("config/config.yaml"), Path("profiles")
WITHOUT_VALUE = {
    "-n", "--dry-run", "--forceall", "-F", "--keep-going", "-k", "--nolock", "-p", "--printshellcmds",
    "--rerun-incomplete", "--show-failed-logs", "--unlock",
}  # fmt: skip
"""Options of Snakemake behind which a word is a file to make."""
COUNTS = {"--cores": "all", "-c": "all", "--jobs": "unlimited", "-j": "unlimited"}
"""Options of Snakemake that take a number, and the word instead; it waits without end for no core."""
EXECUTOR = "snakemake_executor_plugin_"
"""How the modules of Snakemake's executors begin."""
USUAL = {
    "--cores", "--config", "--configfile", "--configfiles", "--dry-run", "--directory", "--forceall", "--forcerun",
    "--jobs", "--keep-going", "--max-checksum-file-size", "--nolock", "--profile", "--quiet", "--rerun-incomplete",
    "--resources", "--scheduler", "--show-failed-logs", "--unlock", "--until", "--workflow-profile",
    "--", "-F", "-R", "-U", "-c", "-j", "-k", "-n", "-p",
}  # fmt: skip
"""Options of Snakemake that are known without asking it."""
EXECUTORS, SOFTWARE = ("--executor", "-e"), ("--software-deployment-method", "--sdm")
IN_PROFILES = {"--profile", "--workflow-profile"}
"""Options that name a profile."""
CONFIG_FILES, CONFIG_VALUES = ("--configfile", "--configfiles"), ("--config", "-C")
TAKE_RULES = ("--until", "-U", "--omit-from", "-O", "--forcerun", "-R", "--allowed-rules")
"""Options that take names of rules, or files."""
FORCE = "--forcerun", "-R"
"""The option that makes files again, in both forms."""
SET_OF_RULES = {
    "--set-resources": ("RULE:NAME=NUMBER", "[^:=]+:[^:=]+=.+"), "--set-threads": ("RULE=NUMBER", "[^:=]+=.+")
}  # fmt: skip
"""Options that set something of a rule, with the form of their words, for a message and as a pattern."""
SETTERS = {**SET_OF_RULES, **dict.fromkeys(("--default-resources", "--resources"), ("NAME=NUMBER", "[^:=]+=.+"))}
"""These, and options that set something of all rules."""
ELSEWHERE = {
    "-n", "--dry-run", "--unlock", "--lint", *EXECUTORS, *IN_PROFILES, *TAKE_RULES
}  # fmt: skip
"""Options with which a run measures nothing, or not on this machine."""
LISTS = (*CONFIG_FILES, *CONFIG_VALUES, *SETTERS)
"""Options that take words, of which none is a file to make."""
TAKE_VALUES = {
    **dict.fromkeys(CONFIG_FILES, "FILE"),
    **dict.fromkeys(CONFIG_VALUES, "SECTION='{FIELD: VALUE}'"),
    **dict.fromkeys(TAKE_RULES, "STAGE"),
    **dict.fromkeys(("--profile", "--workflow-profile", "--directory", "-d"), "FOLDER"),
    **dict.fromkeys(COUNTS, "NUMBER"),
}
"""Options that Snakemake answers with its whole usage, or with nothing, where their value is missing."""
YAML = ".yaml", ".yml"
MODELS = re.compile(rf"results/models/({ARCH_PATTERN})/?")
SNAKEFILES = "Snakefile", "snakefile", "workflow/Snakefile", "workflow/snakefile"


def with_options(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the option that each word stands behind, and the word; of an option itself what ``=`` gives it, or ""."""
    option = ""
    for word in words:
        if word.startswith("-") and not word[1:].isdigit():
            option, _, word = word.partition("=")
        elif option in LISTS and word.startswith("results/") and not word.endswith(YAML):
            option = ""
        yield option, word
        if (word and option not in (*LISTS, *TAKE_RULES)) or option in WITHOUT_VALUE:
            option = ""


def split_targets(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return what is to be made, and the other words.

    What is to be made stands before all options, behind ``--``, or is a file of ``results`` elsewhere, where Snakemake
    would take it for a value of an option with several, or for a second list. Models are made also behind
    ``--until STAGE``.
    """
    if "--" in words:
        place = list(words).index("--")
        to_make, others = split_targets(words[:place])
        return [*to_make, *words[place + 1 :]], others
    first = next((place for place, word in enumerate(words) if word.startswith("-")), len(words))
    to_make, others = list(words[:first]), []
    for word, (option, _) in zip(words[first:], with_options(words[first:]), strict=True):
        is_file = word.startswith("results/") and option not in TAKE_VALUES
        (to_make if is_file or MODELS.fullmatch(word) else others).append(word)
    return to_make, others


def with_forced(words: Sequence[str], files: Sequence[str]) -> list[str]:
    """Return options with more files that are to be made again."""
    place = next((place for place, word in enumerate(words) if word in FORCE), None)
    if not files or place is None:
        return [*([FORCE[0]] if files else []), *files, *words]
    return [*words[: place + 1], *files, *words[place + 1 :]]


def profiles_of(words: Sequence[str]) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield the file of each profile of a call that is a folder, that of the working folder too, and its content."""
    folders = {option: word for option, word in with_options(words) if option in IN_PROFILES}
    for folder in ({"--workflow-profile": str(PROFILES / "default")} | folders).values():
        if (path := Path(folder, "config.yaml")).is_file():
            content = read_yaml(path)
            if not isinstance(content, dict):
                raise UserError(f"{path}: should have options such as cores: 4, but it is {shown(content)}")
            yield path, content


def words_of_profile(profile: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what a profile says of configurations, jobs and resources, as ``with_options`` does of a call."""
    for option in ("--configfile", "--executor", "--cores", "--jobs", *SETTERS):
        value = profile.get(option.removeprefix("--"), ())
        for word in value if isinstance(value, list) else _assignments(value):
            yield option, str(word)


def _assignments(value: Any) -> Iterator[str]:
    """Yield the words that a value in a profile stands for: RULE:NAME=NUMBER for {RULE: {NAME: NUMBER}}."""
    if not isinstance(value, dict):
        yield from () if value == () else (str(value),)
        return
    for name, inner in value.items():
        for word in _assignments(inner):
            yield f"{name}:{word}" if isinstance(inner, dict) else f"{name}={'' if inner is None else word}"


def refuse_mistakes(arch: str | None, words: Sequence[str]) -> None:
    """Raise a ``UserError`` for words that Snakemake answers with a traceback, or with nothing that helps."""
    if arch is not None and arch not in installed_words() and not re.fullmatch(ARCH_PATTERN, arch):
        if re.search("[/,]", arch):
            raise UserError(f"--arch: {shown(arch)}: give one arch; files of several are words without --arch")
        near = is_it(arch, (*installed_words(), *Config().replays), 0.6 if arch_meant(arch) is None else 0.75)
        raise UserError(f"--arch: {shown(arch)} is no arch{near or f'; {arch_hint(arch)}'}")
    if arch in installed_words() and (gpu := next((word for word in words if re.fullmatch(ARCH_PATTERN, word)), "")):
        raise UserError(f"{gpu} is a GPU: write --gpu {gpu}")
    named = any(word.startswith(("-s", "--snakefile")) for word in words)
    for folder in map(Path, (".", "results", "logs", ".snakemake")):
        if folder.exists() and not os.access(folder, os.W_OK):
            raise UserError(f"{folder.resolve()}: cannot be written; {NOT_WRITABLE}")
    if not named and not any(Path(name).exists() for name in SNAKEFILES):
        raise UserError(f"no {SNAKEFILES[0]} is here; go to the folder of the run, or make one: tileseer init FOLDER")
    if short := next((word for word in words if f"-{word}" in {"--arch", "--gpu", *USUAL}), None):
        raise UserError(f"unknown argument '{short}'; is it -{short}?")
    for option, following in pairwise([*words, "-"]):
        if option in TAKE_VALUES and re.match("-(?![0-9])", following):
            raise UserError(f"{option}: what it takes is missing; write {option} {TAKE_VALUES[option]}")
    if sum(word.partition("=")[0] in CONFIG_FILES for word in words) > 1:
        raise UserError("--configfile is given twice, and the last would count alone; write --configfile FILE FILE")
    given = list(with_options(words))
    for option, word in given:
        if word:
            _refuse_value(option, word)
    options = {option for option, _ in given}
    profiles = dict(profiles_of(words))
    for path, profile in profiles.items():
        for option, word in words_of_profile(profile):
            try:
                _refuse_value(option, word)
            except UserError as error:
                raise UserError(f"{path}: {str(error).removeprefix('--')}") from error
        if profile.get("executor") == "slurm" and not options & {"-n", "--dry-run"}:
            _refuse_absent_slurm(path)
    if any(option in EXECUTORS and word == "slurm" for option, word in given) and not options & IN_PROFILES:
        raise UserError(
            "--executor slurm: write --workflow-profile profiles/slurm, or a copy, which has its partitions"
        )
    unusual = [option for option, _ in given if option not in {"", *USUAL}]
    of_profiles = {f"--{name}" for profile in profiles.values() for name in profile}
    if unusual or of_profiles - USUAL or options & IN_PROFILES:
        _refuse_unknown_options(unusual, words, profiles)


def _refuse_value(option: str, word: str) -> None:
    """Raise a ``UserError`` for a value that an option does not take."""
    if option in CONFIG_FILES:
        if Path(word).is_dir():
            raise UserError(f"{option}: {shown(word)} is a folder; name a file of it")
        if not places.find_file(Path(word)).is_file():
            shipped = [CONFIG_FILE.with_name(path.name) for path in places.find_file(CONFIG_FILE).parent.glob("*.yaml")]
            files = [*Path(word).parent.glob("*.y*ml"), *shipped]
            way = "put what to make before --configfile"
            if "," in word:
                way = "separate files by blanks"
            elif word.endswith(YAML):
                way = "correct its path"
            raise UserError(
                f"--configfile: {shown(word)}: there is no such file{is_it(word, files, 0.8) or f'; {way}'}"
            )
    if option in CONFIG_VALUES:
        _refuse_setting(option, word)
    form, pattern = SETTERS.get(option, ("", ".*"))
    if form and not re.fullmatch(pattern, word):
        raise UserError(f"{option}: {shown(word)}: write {form}")
    if option in SETTERS:
        refuse_resource(option, word)
    if option in COUNTS and word != COUNTS[option] and not re.fullmatch("[1-9][0-9]*", word):
        raise UserError(f"{option}: {shown(word)}: give a whole number from 1, or {COUNTS[option]}")
    if option in SOFTWARE and word == "conda" and not shutil.which("conda"):
        raise UserError(f"{option} conda: there is no conda on the PATH; leave it out where the packages are installed")
    if option in EXECUTORS and word not in (known := _executors()):
        raise UserError(f"{option}: {shown(word)} is not installed; there are {', '.join(known)}{is_it(word, known)}")
    if option in ("--directory", "-d") and not Path(word).is_dir():
        absent = f"there is no such folder; make one: tileseer init {word}"
        way = "is a file; name a folder" if Path(word).exists() else absent
        raise UserError(f"{option}: {shown(word)}: {way}")
    if option == "--profile" and not Path(word).is_dir() and (PROFILES / word).is_dir():
        raise UserError(
            f"--profile: {shown(word)} is a profile of this folder; write --workflow-profile {PROFILES / word}"
        )
    # Elsewhere a profile may be a name that Snakemake looks for.
    if word != "none" and (option == "--workflow-profile" or (option == "--profile" and "/" in word)):
        _refuse_profile(option, word)


def _refuse_profile(option: str, word: str) -> None:
    """Raise a ``UserError`` for the path of a profile that is none."""
    if (ours := places.find_file(Path(word))) != Path(word):
        raise UserError(f"{option}: {shown(word)}: is not in this folder; copy it: cp -r {ours} {PROFILES}")
    if not Path(word).is_dir():
        known = sorted(PROFILES.glob("*/"))
        copy = f"; there are {', '.join(map(str, known))}; one of your own is a copy: cp -r {PROFILES}/slurm {word}"
        if (folder := Path(word).parent).is_dir() and Path(word).suffix in YAML:
            raise UserError(f"{option}: {shown(word)}: a profile is a folder; write {option} {folder}")
        advice = is_it(word, known, 0.4) if is_it(Path(word).name, [path.name for path in known]) else copy
        raise UserError(f"{option}: {shown(word)}: there is no such folder{advice}")
    if not any(Path(word).glob("*.yaml")):
        raise UserError(f"{option}: {shown(word)}: has no config.yaml; copy that of a profile, such as profiles/slurm")


def _refuse_absent_slurm(profile: Path) -> None:
    """Raise a ``UserError`` where no controller of SLURM answers: Snakemake asks again for a minute."""
    where = f"{profile}: no controller of SLURM answers here; call it on a login node of the cluster"
    try:
        said = subprocess.run(["scontrol", "ping"], capture_output=True, text=True, check=False)
    except OSError as error:
        raise UserError(f"{where}: scontrol: {error.strerror}") from error
    if "is UP" not in said.stdout:
        raise UserError(f"{where}, or list the jobs with -n")


def _refuse_setting(option: str, word: str) -> None:
    """Raise a ``UserError`` for a word of ``--config`` that is no NAME=VALUE of a section."""
    name, given, text = word.partition("=")
    if not given or not name:
        meant = f"--configfile {word}" if Path(word).is_file() else "--config SECTION='{FIELD: VALUE}'"
        if word in Config.model_fields or not name:
            meant = f"{name or 'NAME'}=VALUE without blanks around ="
        raise UserError(f"{option}: {shown(word)} is no setting; write {meant}")
    if match := re.search(rf",(?=({'|'.join(Config.model_fields)})=)", word):
        apart = f"{word[: match.start()]} {word[match.end() :]}"
        raise UserError(f"{option}: {shown(word)}: separate settings by blanks: {option} {apart}")
    if text.count("{") != text.count("}"):
        raise UserError(f"{option}: {name}: the braces do not match; put quotes around them: {name}='{{...}}'")
    if "." in name:
        section, _, field = name.partition(".")
        raise UserError(f"--config: {shown(word)}: write --config {section}='{{{field}: {text}}}'")


def _executors() -> list[str]:
    """Return what Snakemake can run jobs by."""
    plugins = (each.name.partition(EXECUTOR)[2] for each in pkgutil.iter_modules() if each.name.startswith(EXECUTOR))
    return ["local", "dryrun", "touch", *(name.replace("_", "-") for name in plugins)]


def _refuse_unknown_options(
    unusual: Sequence[str], words: Sequence[str], profiles: Mapping[Path, Mapping[str, Any]]
) -> None:
    """Raise a ``UserError`` for ``unusual`` options of ``words`` that Snakemake answers with its whole usage."""
    to_make, others = split_targets(words)
    command = [sys.executable, "-c", PARSE, *others, "--", *to_make]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    own, known = ("--arch", "--gpu"), re.findall(r"--[a-z][a-z-]*", said.stdout)
    for option in (each for each in unusual if each.startswith("--")):
        # Snakemake takes a beginning for its option, and not for ours.
        if any(name.startswith(option) for name in known) and not any(name.startswith(option) for name in own):
            continue
        section, _, field = option.removeprefix("--").replace("-", "_").partition("_")
        if section in Config.model_fields:
            setting = f"{section}='{{{field or 'FIELD'}: VALUE}}'"
            raise UserError(f"{option}: there is no such option; for a setting write --config {setting}")
        raise UserError(f"{option}: there is no such option{is_it(option, [*own, *sorted(known)])}")
    for path, profile in profiles.items():
        if unknown := next((name for name in profile if f"--{name}" not in known), None):
            near = is_it(f"--{unknown}", known).replace("--", "")
            raise UserError(f"{path}: {unknown}: Snakemake has no such option{near}")
    if said.returncode:
        reason = " ".join(re.split("[Ee]rror: ", said.stderr)[-1].split()).removeprefix("argument ")
        if match := re.search(r"unrecognized arguments: (--[\w-]+)", reason):
            reason += is_it(match[1], known)
        # What a function of Snakemake raises names no option.
        if "Traceback" in said.stderr:
            reason = f"{', '.join(dict.fromkeys(unusual))}: {reason}; see snakemake --help"
        of_profiles = [f"{path}: " for path in profiles if not unusual and "profile" not in reason]
        raise UserError("".join([*of_profiles, reason]))


def settings_of(words: Sequence[str]) -> Config:
    """Return the configuration of a call of Snakemake: the folder's, over it files, over these ``--config``."""
    layers, values = [], []
    if (path := places.find_file(CONFIG_FILE)).is_file():
        layers.append((str(CONFIG_FILE), read_config_file(path)))
    given = list(with_options(words))
    if not any(option in CONFIG_FILES for option, _ in given):
        given += [both for _, profile in profiles_of(words) for both in words_of_profile(profile)]
    for option, word in given:
        if word and option in CONFIG_FILES:
            layers.append((word, read_config_file(places.find_file(Path(word)))))
            check(layers[-1][1], word)
        elif word and option in CONFIG_VALUES:
            name, _, text = word.partition("=")
            values.append((option, {name: parse_yaml(text, f"{option}: {name}")}))
    names = [name for _, value in values for name in value]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UserError(f"--config: {twice} is given twice, and the last would count alone; leave one out")
    content: dict[str, Any] = {}
    settings = Config()
    for where, more in (*layers, *values):
        for name, value in more.items():
            both = isinstance(value, dict) and isinstance(content.get(name), dict)
            content[name] = content[name] | value if both else value
        # After each, so that a mistake has the name of its file.
        settings = check(content, where)
    return settings


def taken_back(words: Sequence[str]) -> Iterator[str]:
    """Yield a line for each file with another arch than one before it, or with what the file of a trial had set."""
    files = [word for option, word in with_options(words) if word and option in CONFIG_FILES]
    if len(files) < 2:
        return
    read = {word: read_config_file(places.find_file(Path(word))) for word in files}
    fields = {
        word: [
            f"{name}.{field}"
            for name, value in content.items()
            for field in (value if isinstance(value, dict) else [""])
        ]
        for word, content in read.items()
    }
    for first, other in pairwise(files):
        before, arch = read[first].get("arch"), read[other].get("arch")
        if before and arch and before != arch:
            yield f"note: {other} is for {arch}, and takes {before} of {first} back; two runs make both"
    for place, trial in enumerate(files):
        for other in files[place + 1 :] if "publish.name" in fields[trial] else ():
            if both := [field.rstrip(".") for field in fields[trial] if field in fields[other]]:
                yield f"note: {other} takes back {', '.join(both)} of the trial {trial}; to have the trial put it last"
