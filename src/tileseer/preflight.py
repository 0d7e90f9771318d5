"""Before the first job: all that the configuration names is read once, and all faults are one list.

The functions are those by which the stages read their inputs. So a run does not end at its fourteenth job for what the
first line of its configuration says, and nothing that an earlier run made is removed for it.
"""

import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from tileseer.compile import registry, source_trees
from tileseer.compile.compiler import find_compiler
from tileseer.config.compile import LIBRARIES
from tileseer.config.config import Config
from tileseer.config.names import ARCH_PATTERN
from tileseer.config.operations import OPERATIONS
from tileseer.config.rule_set_names import RULE_SETS
from tileseer.core.errors import UserError, shown
from tileseer.gpus.arch import ArchSpecs
from tileseer.gpus.hardware import Hardware, hardware_of_arch, read_products, target
from tileseer.kernels import rule_sets
from tileseer.kernels.ck_tile.flags import check_flags
from tileseer.kernels.costs.coefficients import load_coefficients
from tileseer.kernels.enumeration import parse_kernel_filter
from tileseer.kernels.libraries import library_of_arch
from tileseer.learn.learner import class_of
from tileseer.measure.device import NO_TIMES, refuse_unless_emulated
from tileseer.problems import training_set

TOOLCHAIN_OF_DEVICE = {"cuda": "nvcc", "hip": "hipcc", "emulated": "hipcc"}
SOURCES = ("configs", "headers", "sources")
"""Folders of results that need kernels and no GPU product."""
TIMES = ("models", "reports", "datasets", "training", "validation", "serving", "benchmark")
"""Folders of results that need times."""
NO_ARCH = ("problems", "arch_specs", "stages")
MOST_LINES = 10
"""Of one file: a table of another kind has a fault in each of its lines."""
MIB_A_PROBLEM = 0.04
"""What a run writes at least: journal and dataset rows of about 300 candidates."""
MIB_AN_OPERATION = 4.0
Result = TypeVar("Result")


class RequestedFolder(NamedTuple):
    """What a target needs."""

    folder: str
    """Below ``results``."""
    arch: str


class Tables(NamedTuple):
    """Files of the workflow that the configuration does not name."""

    rule_sets: Path
    coefficients: Path
    ck_api: Path


def requests_of(targets: Iterable[str], arch: str) -> list[RequestedFolder]:
    """The archs that targets are about; ``arch`` is that of the configuration, for a target that is a rule."""
    requests = []
    for name in targets:
        place = re.search(rf"(?:^|/)results/(\w+)(?:/({ARCH_PATTERN})(?=[/.]|$))?", name)
        if place is None:
            requests.append(RequestedFolder("models", arch))
        elif place[2]:
            requests.append(RequestedFolder(place[1], place[2]))
    return list(dict.fromkeys(requests if targets else [RequestedFolder("models", arch)]))


def refuse_faults(settings: Config, targets: Iterable[str], tables: Tables) -> None:
    """``UserError`` with a line for each fault of what ``settings`` name, as far as ``targets`` need it."""
    faults = _Faults()
    _check_files(faults, settings)
    specs = faults.first(partial(ArchSpecs.load, settings.arch_specs))
    faults.first(partial(read_products, settings.hardware))
    faults.first(partial(load_coefficients, tables.coefficients))
    for check in training_set.checks(settings.problems):
        faults.first(check)
    faults.first(partial(check_flags, settings.configs.include_flagged), "configs.include_flagged")
    requests = requests_of(targets, settings.arch)
    for request in requests:
        _check_arch(faults, settings, specs, tables, request)
    if learner := settings.model.parameters.learner:
        faults.first(partial(_check_learner, learner, requests))
    _check_toolchain(faults, settings, tables)
    if any(request.folder in TIMES for request in requests):
        faults.first(partial(_check_disk, settings, Path()))
    if faults.lines:
        raise UserError("\n".join(faults.lines))


def refuse_targets(settings: Config, unknown: Iterable[str], several: Iterable[str], rules: Iterable[str]) -> None:
    """``UserError`` for names that no rule makes (``unknown``), and for target rules that make ``several`` files."""
    archs = dict.fromkeys([settings.arch, *settings.benchmark.products, *settings.replays])
    forms = ("results/models/{}", "results/reports/{}.html", "results/verdicts/{}.tsv")
    names = [*rules, *(form.format(arch) for arch in archs for form in forms)]
    lines = []
    for name in unknown:
        near = get_close_matches(name, names, 1, 0.75)
        meant = f"do you mean {near[0]}?" if near else "snakemake --list-rules lists the rules"
        lines.append(f"{name}: there is no such rule or file, and no rule makes it; {meant}")
    for rule in several:
        lines.append(
            f"{rule}: the rule makes a file for each arch; name a file, such as results/models/{settings.arch}, or add "
            f"--until {rule}"
        )
    if lines:
        raise UserError("\n".join(lines))


class _Faults:
    """The faults, each once, in the order in which they were met."""

    def __init__(self) -> None:
        self.lines: dict[str, None] = {}
        self._missing: set[str] = set()

    def missing(self, field: str, path: str, what: str = "") -> None:
        """Note a file that is not there; what reading it says is no further fault."""
        folder = Path(path).parent
        near = get_close_matches(Path(path).name, [each.name for each in folder.glob("*")], 1, 0.75)
        meant = f"; is it {(folder / near[0]).as_posix()}?" if near else "; correct the path"
        self.lines[f"{field}: {path}: there is no such file{meant}{what}"] = None
        self._missing.add(path)

    def first(self, check: Callable[[], Result], field: str = "") -> Result | None:
        """What ``check`` gives; None where it raises, which is noted with the ``field`` that the value is of."""
        try:
            return check()
        except UserError as error:
            lines = [_with_field(line, field) for line in str(error).splitlines()]
        except OSError as error:
            lines = [f"{error.filename}: {error.strerror}"]
        if len(lines) > MOST_LINES:
            lines[MOST_LINES:] = [f"{lines[0].partition(': ')[0]}: and {len(lines) - MOST_LINES} faults more"]
        self.lines |= dict.fromkeys(line for line in lines if not any(path in line for path in self._missing))
        return None


def _with_field(line: str, field: str) -> str:
    """A line behind ``field``, unless it begins with a field of its own."""
    named = re.split(r"[.:]", line)[0] in Config.model_fields
    return f"{field}: {line}" if field and not named else line


def _check_files(faults: _Faults, settings: Config) -> None:
    problems, rule_set = settings.problems, settings.configs.rule_set
    named = [("arch_specs", settings.arch_specs), ("hardware", settings.hardware)]
    named += [(f"problems.{name}", getattr(problems, name)) for name in ("networks", "validation")]
    named += [("problems.training", path) for path in problems.training]
    for field, path in named:
        if not Path(path).is_file():
            faults.missing(field, path)
    if rule_set not in RULE_SETS and not Path(rule_set).is_file():
        faults.missing("configs.rule_set", rule_set, f" Sets with a name: {', '.join(RULE_SETS)}")


def _check_arch(
    faults: _Faults, settings: Config, specs: ArchSpecs | None, tables: Tables, request: RequestedFolder
) -> None:
    folder, arch = request
    recorded = arch in settings.replays
    operations: Sequence[str] = settings.operations or OPERATIONS
    if not recorded and not library_of_arch(arch).offered and specs and arch not in specs.archs:
        faults.first(partial(_refuse_arch, settings, specs, arch))
        return
    gpu = None
    if folder not in SOURCES:
        gpu = faults.first(partial(hardware_of_arch, settings.hardware, settings.benchmark.products, arch))
    if recorded:
        operations = faults.first(partial(_recorded_operations, settings, arch, gpu)) or ()
    else:
        faults.first(partial(_check_device, settings, request))
        if settings.benchmark.device == "emulated":
            faults.first(partial(refuse_unless_emulated, arch))
        if not library_of_arch(arch).offered:
            _check_kernels(faults, settings, tables, arch, operations)
    if folder in TIMES:
        for other in [] if recorded else _checked_on(settings, arch):
            faults.first(partial(hardware_of_arch, settings.hardware, settings.benchmark.products, other))
        for operation in operations:
            faults.first(partial(_check_model, settings, arch, operation), "model.prior")


def _checked_on(settings: Config, arch: str) -> list[str]:
    """The recorded archs of the same target and kernels: a model is checked on their times."""
    others = [name for name, folder in settings.replays.items() if Path(folder).is_dir() and target(name) == arch]
    return [other for other in others if library_of_arch(other) == library_of_arch(arch)]


def _refuse_arch(settings: Config, specs: ArchSpecs, arch: str) -> None:
    archs = list(dict.fromkeys([*specs.archs, *settings.replays]))
    near = get_close_matches(arch, archs, 1)
    meant = f"do you mean {near[0]}? " if near else ""
    where = f"neither in {settings.arch_specs} nor under replays"
    raise UserError(f"arch: {shown(arch)} is {where}; {meant}there are {', '.join(archs)}")


def _recorded_operations(settings: Config, arch: str, gpu: Hardware | None) -> Sequence[str]:
    """Those that the workflow replays of an arch: without one that was not recorded, where others are left."""
    # Not above: Arrow's tables take time that an arch without a recording does not need.
    from tileseer.dataset import recording

    folder = Path(settings.replays[arch])
    if not (folder / recording.FILE).exists():
        raise UserError(
            f"{folder / recording.FILE}: there is no such file, but replays names it for {arch}; an installed package "
            "has no recordings: copy config/recorded of the repository into this folder, or give replays another folder"
        )
    recorded = recording.read_recording(folder).operations
    requested = settings.operations or recorded
    replayed = [name for name in requested if name in recorded] or requested
    if gpu is not None:
        for operation in replayed:
            recording.check_recording(folder, operation, gpu)
    return replayed


def _check_device(settings: Config, request: RequestedFolder) -> None:
    device, toolchain = settings.benchmark.device, settings.compile.toolchain
    library = library_of_arch(request.arch)
    right = TOOLCHAIN_OF_DEVICE.get(device)
    if device == "emulated" and request.folder in TIMES:
        raise UserError(f"benchmark.device is emulated: {NO_TIMES}")
    if right is not None and toolchain != right and not library.offered:
        raise UserError(f"benchmark.device is {device}, but compile.toolchain is {toolchain}; set it to {right}")
    if library.offered and device != "cuda":
        raise UserError(
            f"benchmark.device is {device}, but only a GPU shows which {library.name} kernels "
            f"{request.arch} has; set it to cuda, or give the recording of the arch under replays"
        )
    if toolchain != "none" and request.folder not in SOURCES and not library.offered:
        registry.refuse_other_toolchain(settings.compile, request.arch)


def _check_kernels(faults: _Faults, settings: Config, tables: Tables, arch: str, operations: Sequence[str]) -> None:
    configs = settings.configs
    field = "configs.rule_set"
    faults.first(partial(rule_sets.check_rule_set, configs.rule_set, tables.rule_sets, arch, operations), field)
    faults.first(partial(rule_sets.digest_instances, configs.rule_set, tables.rule_sets, settings.ck.root), field)
    if configs.filter:
        faults.first(partial(parse_kernel_filter, configs.filter, [library_of_arch(arch).kernel], "configs.filter"))


def _check_model(settings: Config, arch: str, operation: str) -> None:
    # Not above: without a prior of its own, a configuration says nothing of a model that needs them.
    parameters = settings.model.parameters
    if parameters.features == "tileseer" and parameters.prior in ("auto", "none"):
        return
    from tileseer.learn import prior, training

    parameters = training.with_features_of(parameters, arch)
    measured = "simulated" if settings.benchmark.device == "simulated" else "measured"
    training.refuse_formula(parameters, arch, "recorded" if arch in settings.replays else measured)
    if parameters.prior_folder is not None:
        if not parameters.prior_folder.is_dir():
            raise UserError(
                f"model.prior: {parameters.prior_folder}: there is no such folder; give that of a trained model, such "
                "as results/training/ARCH/OPERATION, or auto"
            )
        prior.prior_of(parameters, operation, None)


def _check_learner(learner: str, requests: Sequence[RequestedFolder]) -> None:
    class_of(learner)
    for folder, arch in requests:
        if folder == "models":
            raise UserError(
                f"model.learner: {learner}: a learner from outside has no C++ header, so its models are not published; "
                f"ask for results/reports/{arch}.html"
            )


def _check_toolchain(faults: _Faults, settings: Config, tables: Tables) -> None:
    requested, device = settings.compile, settings.benchmark.device
    compiles = requested.toolchain != "none"
    roots = {name: getattr(settings, name).root for name in LIBRARIES}
    if compiles:
        # Each on its own, then what rules need of both.
        faults.first(partial(find_compiler, requested))
        faults.first(partial(registry.fingerprint, requested, roots))
    faults.first(partial(source_trees.ck_level, settings.ck, tables.ck_api, compiles=requested.toolchain == "hipcc"))
    if device in TOOLCHAIN_OF_DEVICE and not compiles:
        faults.first(partial(registry.driver_compiler, requested))


def _check_disk(settings: Config, folder: Path) -> None:
    """``UserError`` where a run writes more than the disk has free, beside what earlier runs left in ``folder``."""
    problems = settings.problems.design + settings.problems.training_layers + settings.problems.validation_problems
    operations = len(settings.operations or OPERATIONS)
    needed = operations * (MIB_AN_OPERATION + MIB_A_PROBLEM * problems)
    results = folder / "results"
    free = shutil.disk_usage(results if results.is_dir() else folder).free / 2**20
    if free < needed:
        made = sum(_sizes(results)) / 2**20
        if free + made < needed:
            raise UserError(
                f"results: {free:,.0f} MiB are free on its disk, and a run writes at least {needed - made:,.0f} MiB; "
                "free space, or run in a folder of another disk"
            )


def _sizes(folder: Path) -> Iterator[int]:
    return (path.stat().st_size for path in folder.rglob("*") if path.is_file())
