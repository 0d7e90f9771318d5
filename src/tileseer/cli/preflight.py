"""Before the first job: all that the configuration names is read once, and all faults are one list.

The functions are those by which the stages read their inputs. So a run does not end at its fourteenth job for what the
first line of its configuration says, and nothing that an earlier run made is removed for it.
"""

import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TypeVar

from tileseer.build import registration, source_trees
from tileseer.build.compiler import find_compiler
from tileseer.core.errors import UserError, is_it, shown
from tileseer.core.reading import way_to
from tileseer.data import recordings
from tileseer.data.dataset_files import check_recording
from tileseer.facts.arch import ArchSpecs
from tileseer.facts.compile import SECTIONS_OF_LIBRARIES
from tileseer.facts.config import Config
from tileseer.facts.hardware import Hardware, hardware_of_arch, read_products
from tileseer.facts.operations import OPERATIONS, RULE_SETS
from tileseer.learn import model_files
from tileseer.learn.features import feature_set
from tileseer.learn.learner import learner_class
from tileseer.libraries import rule_sets
from tileseer.libraries.costs.coefficients import load_coefficients
from tileseer.libraries.registry import library_of_arch, vendor_arch
from tileseer.measure.device import refuse_unless_emulated
from tileseer.measure.harness.telemetry import DRIVERS, missing_driver, refuse_other_gpus
from tileseer.problems import problem_sets

TOOLCHAIN_OF_DEVICE = {"cuda": "nvcc", "hip": "hipcc", "emulated": "hipcc"}
MOST_LINES = 10
"""Of one file: a table of another kind has a fault in each of its lines."""
Result = TypeVar("Result")


def refuse_faults(settings: Config, named_sets: Path, coefficients: Path, ck_api: Path) -> None:
    """Raise a ``UserError`` with the lines of ``faults_of``, if there are any."""
    if lines := faults_of(settings, named_sets, coefficients, ck_api):
        raise UserError("\n".join(lines))


def refuse_arch(settings: Config, arch: str, named_sets: Path) -> None:
    """Raise a ``UserError`` for faults of an arch that a call names beside the configured one."""
    faults = _Faults()
    specs = ArchSpecs.load(settings.arch_specs)
    _check_arch(faults, settings.model_copy(update={"arch": arch}), specs, named_sets)
    if faults.lines:
        raise UserError("\n".join(faults.lines))


def refuse_other_library(arch: str, settings: Config) -> None:
    """Raise a ``UserError`` where a configuration measures or compiles kernels of another library than an arch has."""
    own, device, toolchain = library_of_arch(arch), settings.benchmark.device, settings.compile.toolchain
    backend, configuration = own.measured_with or ("", "")
    of_kernels = toolchain == own.toolchain if device in DRIVERS else toolchain in ("none", own.toolchain)
    if (device in DRIVERS and device != backend) or not (own.offered or of_kernels):
        ways = [f"take --configfile {configuration}, which measures them"] if backend else []
        ways += [] if own.offered else ["leave out what says so"]
        if device == "cuda" and toolchain == "none" and (vendor := vendor_arch(arch)):
            ways.append(f"call the arch {vendor} for {library_of_arch(vendor).title}'s")
        raise UserError(
            f"{arch}: benchmark.device is {device} and compile.toolchain {toolchain}, which is not for {own.title}'s "
            f"kernels; {', or '.join(ways) or recordings.way_to_models(arch)}"
        )


def faults_of(settings: Config, named_sets: Path, coefficients: Path, ck_api: Path) -> list[str]:
    """Return a line for each fault of what ``settings`` name.

    ``named_sets`` is the folder of the rule sets with a name, ``coefficients`` and ``ck_api`` the tables of the
    simulated device and of CK Tile's names.
    """
    faults = _Faults()
    _check_files(faults, settings)
    specs = faults.first(partial(ArchSpecs.load, settings.arch_specs))
    faults.first(partial(read_products, settings.hardware))
    faults.first(partial(load_coefficients, coefficients))
    for check in problem_sets.checks(settings.problems):
        faults.first(check)
    faults.first(partial(rule_sets.check_flags, settings.configs.include_flagged), "configs.include_flagged")
    _check_arch(faults, settings, specs, named_sets)
    faults.first(partial(feature_set, settings.model.features), "model.features")
    faults.first(partial(_refuse_prior, settings))
    faults.first(partial(learner_class, settings.model.learner), "model.learner")
    _check_toolchain(faults, settings, ck_api)
    return list(faults.lines)


def measuring_time(settings: Config, operations: Sequence[str]) -> str:
    """Return how long a GPU will measure these operations of the configured arch, in words."""
    if missing := missing_driver(settings.benchmark.device):
        return f"warning: the jobs benchmark need a GPU, and this machine shows none: {missing}"
    budget = settings.benchmark.budget_s
    if budget is None:
        return "measuring: all pairs, without a limit; benchmark.budget, such as 20m for each operation, sets one"
    count = len(operations)
    whole, each = (timedelta(seconds=round(seconds)) for seconds in (budget * count, budget))
    return (
        f"measuring: at most {whole} of the GPU, {each} for each of {count} operations (benchmark.budget), less what "
        "earlier runs spent; interrupted, the same command goes on"
    )


class _Faults:
    """The faults, each once, in the order in which they were met."""

    def __init__(self) -> None:
        self.lines: dict[str, None] = {}
        self._missing: set[str] = set()

    def missing(self, field: str, path: str, way: str = "") -> None:
        """Note a file that is not there, and the ``way`` out; what reading it says is no further fault."""
        if Path(path).is_dir():
            self.lines[f"{field}: {path}: is a folder; name a file of it"] = None
        else:
            self.lines[f"{field}: {path}: there is no such file{way or way_to(Path(path))}"] = None
        self._missing.add(path)

    def first(self, check: Callable[[], Result], field: str = "") -> Result | None:
        """Return what ``check`` gives; None where it raises, which is noted with the ``field`` that the value is of."""
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
    """Return a line behind ``field``, unless it begins with a field of its own."""
    named = re.split(r"[.:]", line)[0] in Config.model_fields
    return f"{field}: {line}" if field and not named else line


def _check_files(faults: _Faults, settings: Config) -> None:
    problems, rule_set = settings.problems, settings.configs.rule_set
    named = [("arch_specs", settings.arch_specs), ("hardware", settings.hardware)]
    named += [(f"problems.{name}", getattr(problems, name)) for name in ("networks", "validation")]
    named += [("problems.training", path) for path in problems.training]
    for path in settings.model.prior_files[:1]:
        if not Path(path).is_file():
            way = "; name the folder of an operation of models, such as a copy of results/training/gfx950/forward_bf16"
            faults.missing("model.prior", path, way)
    for field, path in named:
        if not Path(path).is_file():
            faults.missing(field, path)
    if rule_set not in RULE_SETS and not Path(rule_set).is_file():
        way = way_to(Path(rule_set))
        faults.missing("configs.rule_set", rule_set, f"{way}; sets with a name: {', '.join(RULE_SETS)}")


def _check_arch(faults: _Faults, settings: Config, specs: ArchSpecs | None, named_sets: Path) -> None:
    """Note faults of the configured arch."""
    arch = settings.arch
    offered = library_of_arch(arch).offered
    if arch not in settings.replays and not offered and specs and arch not in specs.archs:
        faults.first(partial(_refuse_arch, settings, specs))
        return
    gpu = faults.first(partial(hardware_of_arch, settings.hardware, settings.benchmark.products, arch))
    if arch in settings.replays:
        faults.first(partial(_check_recording, settings, gpu))
        return
    faults.first(partial(_check_device, settings))
    if not offered:
        configs, operations, field = settings.configs, settings.operations or OPERATIONS, "configs.rule_set"
        faults.first(partial(rule_sets.check_rule_set, configs.rule_set, named_sets, arch, operations, specs), field)
        faults.first(partial(rule_sets.instance_files, configs.rule_set, named_sets, settings.ck.root), field)


def _refuse_arch(settings: Config, specs: ArchSpecs) -> None:
    archs = list(dict.fromkeys([*specs.archs, *settings.replays]))
    # A letter too many or too few: gfx1030 is no mistake for gfx1200.
    near = is_it(settings.arch, archs, 0.9)
    there = f"; there are {', '.join(archs)}, and docs/CONTRIBUTING.md adds one{is_it(settings.arch, archs, 0.81)}"
    raise UserError(
        f"arch: {shown(settings.arch)} is neither in {settings.arch_specs} nor under replays{near or there}"
    )


def _refuse_prior(settings: Config) -> None:
    """Raise a ``UserError`` for a model to start from that runs replace, or that is of another kind."""
    folder, own = settings.model.prior_folder, f"results/models/{settings.published_as(settings.arch)}/"
    if folder is None or not (folder / model_files.SPEC).is_file():
        return
    if folder.as_posix().startswith(("results/training/", own)):
        copy = f"mkdir -p priors && cp -r {folder} priors/, and name priors/{folder.name}"
        raise UserError(f"model.prior: {folder}: runs make this folder anew; copy it: {copy}")
    # With what trains, which takes a second to import.
    from tileseer.learn.training import read_prior

    for variant in dict.fromkeys(one.rpartition("_")[0] for one in recordings.operations_of(settings, settings.arch)):
        read_prior(folder, settings.model.features, variant)


def _check_recording(settings: Config, gpu: Hardware | None) -> None:
    device, recording = settings.benchmark.device, settings.replays[settings.arch]
    if device in TOOLCHAIN_OF_DEVICE:
        raise recordings.replayed(settings, settings.arch)
    operations = recordings.operations_of(settings, settings.arch)
    if gpu is not None:
        for operation in operations:
            check_recording(Path(recording), operation, gpu)


def _check_device(settings: Config) -> None:
    arch, device, toolchain = settings.arch, settings.benchmark.device, settings.compile.toolchain
    library = library_of_arch(arch)
    if device == "emulated":
        refuse_unless_emulated(arch)
        if toolchain != (right := TOOLCHAIN_OF_DEVICE[device]):
            raise UserError(f"benchmark.device is {device}, but compile.toolchain is {toolchain}; set it to {right}")
    if library.offered and device != "cuda":
        raise UserError(
            f"benchmark.device is {device}, but only a GPU shows which {library.name} kernels "
            f"{arch} has; set it to cuda, or give the recording of the arch under replays"
        )
    refuse_other_library(arch, settings)
    refuse_other_gpus(device, arch)


def _check_toolchain(faults: _Faults, settings: Config, ck_api: Path) -> None:
    requested, device = settings.compile, settings.benchmark.device
    compiles = requested.toolchain != "none"
    roots = {name: getattr(settings, name).root for name in SECTIONS_OF_LIBRARIES}
    if compiles:
        # Each on its own, then what rules need of both.
        faults.first(partial(find_compiler, requested))
        faults.first(partial(registration.fingerprint, requested, roots))
    faults.first(partial(source_trees.ck_level, settings.ck, ck_api, compiles=requested.toolchain == "hipcc"))
    if device in TOOLCHAIN_OF_DEVICE and not compiles:
        faults.first(partial(registration.driver_compiler, requested))
