"""What a run is asked to make: mistakes that Snakemake tells late, or with nothing that helps."""

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from operator import attrgetter
from pathlib import Path

from tileseer.cli import preflight
from tileseer.cli.run_words import ELSEWHERE, SET_OF_RULES, TAKE_RULES, profiles_of, with_options, words_of_profile
from tileseer.core.entry_points import entry_points
from tileseer.core.errors import UserError, is_it, shown
from tileseer.core.places import workflow_folder
from tileseer.core.reading import read_bytes, read_utf8
from tileseer.data.recordings import refusal, replayed, way_to_models
from tileseer.facts.config import Config
from tileseer.facts.hardware import target
from tileseer.facts.names import ARCH_PATTERN, arch_hint
from tileseer.learn import model_files
from tileseer.learn.learner import GROUP
from tileseer.libraries.registry import library_of_arch
from tileseer.measure.harness.telemetry import DRIVERS, missing_driver

UNTIL, NEED_THE_GPU = {"--until", "-U"}, {"plans", "benchmark"}
"""Options that name the last stage of a run, and stages that measure: a run until one of them needs the GPU."""
_OF_KERNELS = {"arch_specs", "configs", "headers", "compile", "libraries", "aliases", "support"}
"""Stages of kernels that are made here."""
_OF_UNRECORDED = (
    "configs.rule_set", "problems.training", "problems.validation", "benchmark.seed", "benchmark.budget",
    "benchmark.timing",
)  # fmt: skip
_OF_TREES = "model.n_estimators", "model.num_leaves", "model.learning_rate", "model.min_child_samples"
_RULE = re.compile(r"^ *rule (\w+):\n(.*?)(?=^ *rule \w+:\n|\Z)", re.MULTILINE | re.DOTALL)
_FOLDER = re.compile(r"results/(\w+)")
_OF_MODELS = re.compile(r"results/(?:models|reports)/([^/]+?)(?:\.html|/)?")
_PART = re.compile(r"(?P<whole>results/(?:models/[^/]+(?=/.+)|(?P<report>reports/[^/.]+)))(?:/.*)?")
"""A file of models, which are made together, or a report without its ending."""
_OF_A_TRIAL = re.compile(
    rf"results/(?:models|reports)/(?P<name>(?P<arch>{ARCH_PATTERN})-(?P<trial>[\w-]+))(?:\.html|/)?"
)


def relative(word: str) -> str:
    """Return the path of a file to make as rules name it, from the folder of the run; another word as it is."""
    inside = "/" in word and Path(os.path.abspath(word)).is_relative_to(Path.cwd())
    return os.path.relpath(word) if inside else word


def refuse_mistakes(words: Sequence[str], archs: Sequence[str], settings: Config) -> None:
    """Raise a ``UserError`` for what cannot be made, or not on this machine.

    Args:
        words: Those of the call.
        archs: Whose models are asked for.
        settings: The configuration of the call.
    """
    given = list(with_options(words))
    files = [word for option, word in given if not option]
    rules = [word for option, word in given if option in TAKE_RULES and word]
    set_by = [("", given), *((f"{path}: ", words_of_profile(profile)) for path, profile in profiles_of(words))]
    only_rules: dict[str, str] = {}
    for where, own in set_by:
        for option, word in own:
            if option in SET_OF_RULES and word:
                only_rules.setdefault(re.split("[:=]", word)[0], where)
    _refuse_names(files, rules, only_rules, settings)
    known = (*settings.replays, *settings.benchmark.products)
    for arch in archs:
        if arch not in known and (reason := refusal(settings, arch)):
            raise UserError(f"{arch}: {reason}; {way_to_models(arch, settings)}")
        if arch in settings.replays and settings.benchmark.device in DRIVERS:
            raise replayed(settings, arch)
    made, arch = archs if files or archs else [settings.arch], settings.arch
    # Before a GPU is looked for: a misspelt one has none.
    if arch in made and arch not in known and (near := is_it(arch, known, 0.8)):
        other = f"If it is another one, write benchmark.products: {{{arch}: PRODUCT}}, a product of {settings.hardware}"
        raise UserError(f"arch: {shown(arch)} is known by neither benchmark.products nor replays{near} {other}")
    options = {option for option, _ in given}
    if options & UNTIL and options & {"--omit-from", "-O"}:
        raise UserError("--until and --omit-from both end a run, and one undoes the other; leave one of them out")
    if made and all(word.startswith(("results/models/", "results/reports/")) for word in files):
        lacking = set.intersection(*(_stages_without_jobs(arch, settings) for arch in made))
        if unused := lacking & {word for option, word in given if option in UNTIL}:
            reason = f"models of {made[0]} need no such stage; without it tileseer run -n lists those that they need"
            raise UserError(f"--until {min(unused)}: {reason}")
    if NEED_THE_GPU & {word for option, word in given if option in UNTIL}:
        options -= UNTIL
    measured = [arch for arch in made if arch not in settings.replays]
    for arch in measured:
        preflight.refuse_other_library(arch, settings)
    if measured and not options & ELSEWHERE:
        _refuse_without_gpu(settings.benchmark.device, measured[0])


def _stages_without_jobs(arch: str, settings: Config) -> set[str]:
    """Return which stages the models of an arch do not need, of those that depend on where its times are from."""
    if arch in settings.replays:
        return {*_OF_KERNELS, "driver", "plans", "verdicts", "benchmark", "dataset"}
    if library_of_arch(arch).offered:
        return {*_OF_KERNELS, "verdicts"}
    return {"plans", "verdicts", *(() if settings.benchmark.device in DRIVERS else ("libraries", "driver"))}


def notes_on(settings: Config, archs: Sequence[str]) -> list[str]:
    """Return a line for settings that count for nothing with these archs or this learner, or take models away."""
    usual, lines = Config().located(str(workflow_folder())), []
    recorded = [arch for arch in archs if arch in settings.replays]
    if recorded and len(recorded) == len(archs) and (names := _others(settings, usual, _OF_UNRECORDED)):
        lines.append(f"note: {names} no effect on {recorded[0]}: its recording has the kernels, problems and times")
    operations = settings.operations or ()
    for arch in archs if operations else ():
        models = Path("results/models", settings.published_as(arch))
        with suppress(UserError):
            if lost := sorted(set(model_files.parse_index(models).operations) - set(operations)):
                lines.append(
                    f"note: {models} has {', '.join(lost)} too, and loses it (operations); publish.name keeps it"
                )
    if settings.model.learner != usual.model.learner and (names := _others(settings, usual, _OF_TREES)):
        lines.append(f"note: {names} an effect on the learner trees; {settings.model.learner} may not read it")
    return lines


def damaged(settings: Config, archs: Sequence[str]) -> dict[str, str]:
    """Return published models and reports of archs that were damaged, which Snakemake does not see, and how."""
    found = {}
    for name in map(settings.published_as, archs):
        models, report = Path("results/models", name), Path(f"results/reports/{name}.html")
        if models.is_dir():
            try:
                index = model_files.parse_index(models)
                found[str(models)] = model_files.fault_of(models, index, model_files.file_digests(models))
            except UserError as error:
                found[str(models)] = str(error)
        if report.is_file() and not read_bytes(report).rstrip().endswith(b"</html>"):
            found[str(report)] = f"{report}: is cut short"
    return {path: fault.partition(";")[0] for path, fault in found.items() if fault}


def _others(settings: Config, usual: Config, fields: Sequence[str]) -> str:
    """Return which fields differ from what is usual, with ``have``; empty for none."""
    names = [field for field in fields if attrgetter(field)(settings) != attrgetter(field)(usual)]
    return f"{', '.join(names)} {'have' if names[1:] else 'has'}" if names else ""


def _refuse_without_gpu(device: str, arch: str) -> None:
    """Raise a ``UserError`` where an arch is to be measured on a ``device`` that is a GPU, and there is none."""
    if device in DRIVERS and (missing := missing_driver(device)):
        replays = Config().replays
        recorded = [one for one in (arch, *replays) if one in replays and target(one) == target(arch)]
        other = f"take recorded times: tileseer run --arch {recorded[0]}" if recorded else "leave --configfile out"
        compiled = "" if library_of_arch(arch).offered else "compile with --until libraries, "
        raise UserError(
            f"benchmark.device is {device}, but this machine shows no GPU: {missing}. Without one: {compiled}"
            f"measure on a cluster (--workflow-profile profiles/slurm), or {other}"
        )


def _refuse_names(
    to_make: Sequence[str], of_options: Sequence[str], only_rules: Mapping[str, str], settings: Config
) -> None:
    """Raise a ``UserError`` for a word by which another one was meant.

    Args:
        to_make: Files and rules that the call is to make.
        of_options: Files and rules that its options name.
        only_rules: Rules of which its options, or a profile, set something, each with what begins its message.
        settings: The configuration of the call.
    """
    sources = [*Path().glob("*nakefile"), *sorted(workflow_folder().glob("workflow/rules/*.smk"))]
    text = "\n".join(map(read_utf8, sources))
    folders = _FOLDER.findall(text)
    rules = {name: "arch}" in body for name, body in _RULE.findall(text)}
    for word in (*to_make, *of_options, *only_rules):
        where = only_rules.get(word, "")
        if "\\" in word:
            raise UserError(f"{where}{shown(word)}: write / between folders")
        _, in_results, rest = word.partition("results/")
        folder = rest.partition("/")[0]
        if in_results and folder not in folders and (near := is_it(folder, folders)):
            raise UserError(f"nothing makes {word}; of results/{folder}{near}")
        if "/" in word or word in rules or (word not in only_rules and Path(word).exists()):
            continue
        if near := is_it(word, rules):
            raise UserError(f"{where}there is no rule {shown(word)}{near}")
        # Rules of a module have other names.
        if word in (*of_options, *only_rules) and not re.search(r"^module \w+:", text, re.MULTILINE):
            raise UserError(f"{where}there is no rule {shown(word)}; there are {', '.join(sorted(rules))}")
    for word in to_make:
        for path in (Path(word), Path("config", word)):
            if path.suffix == ".yaml" and path.is_file():
                raise UserError(f"nothing makes {word}; if it is the configuration, write --configfile {path}")
        if (match := _OF_MODELS.fullmatch(word)) and not re.fullmatch(rf"(?:{ARCH_PATTERN})(-\w+)*", match[1]):
            near = is_it(match[1], (*settings.replays, *settings.benchmark.products), 0.9).removeprefix("; ")
            raise UserError(f"{word}: {match[1]} is no arch; {near or arch_hint(match[1])}")
        if match := _PART.fullmatch(word):
            raise UserError(f"nothing makes {word} alone; is it {match['whole']}{'.html' if match['report'] else ''}?")
        if rules.get(word):
            raise UserError(f"{word} is a stage of each arch: write --until {word}, or a file of it")
        if re.fullmatch(ARCH_PATTERN, word):
            raise UserError(f"{word} is an arch: write --arch {word}, or for several results/models/{word}")
        if (match := _OF_A_TRIAL.fullmatch(word)) and match["name"] != (own := settings.published_as(match["arch"])):
            trial = match["trial"]
            way = f"model='{{learner: {trial}}}'" if trial in entry_points(GROUP) else f"publish='{{name: {trial}}}'"
            raise UserError(
                f"{word}: this configuration publishes as {own}; add the --configfile of that trial, such as "
                f"config/smoke.yaml, or write --config {way}"
            )
