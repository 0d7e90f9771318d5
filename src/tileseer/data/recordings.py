"""Which operations an arch has, what makes models of one, and which other data type says something of one."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from tileseer.core.errors import UserError, is_it
from tileseer.core.places import find_file, workflow_folder
from tileseer.core.yaml_files import read_yaml
from tileseer.data import dataset_files
from tileseer.facts.arch import ArchSpecs
from tileseer.facts.config import Config, check
from tileseer.facts.hardware import target
from tileseer.facts.operations import OPERATIONS, RULE_SETS
from tileseer.libraries.registry import installed_words, library_of_arch, vendor_arch
from tileseer.libraries.rule_sets import RuleSet
from tileseer.problems.operation import Operation


def recorded_operations(replays: Mapping[str, str], arch: str) -> list[str]:
    """Return the operations of an arch's recording; a ``UserError`` names one that is missing or damaged."""
    folder = Path(replays[arch])
    if not (folder / dataset_files.FILE).exists():
        near = is_it(folder, [path.parent for path in folder.parent.glob(f"*/{dataset_files.FILE}")], 0.8)
        copy = "an installed package has none: copy config/recorded of the repository into this folder"
        way = near or f"; give the folder of a recording; {copy}"
        raise UserError(f"replays.{arch}: {folder / dataset_files.FILE}: there is no such file{way}")
    return dataset_files.read_recording(folder).operations


def operations_of(settings: Config, arch: str) -> Sequence[str]:
    """Return the operations of an arch: those of the settings; of a recording those that it has, or all.

    ``UserError`` where nothing makes models of it, with what does.
    """
    if arch not in settings.replays:
        if reason := refusal(settings, arch):
            # Where the usual rules have kernels, rules of the user's own are the mistake.
            usual = settings.model_copy(update={"configs": Config().located(str(workflow_folder())).configs})
            way = f"; {way_to_models(arch, settings)}" if refusal(usual, arch) else ""
            raise UserError(f"arch: {arch}: {reason}{way}")
        return settings.operations or OPERATIONS
    recorded = recorded_operations(settings.replays, arch)
    own = [each for each in settings.operations or recorded if each in recorded]
    if not own:
        asked = ", ".join(settings.operations or ())
        raise UserError(f"{settings.replays[arch]}: {asked} was not recorded; it has {', '.join(recorded)}")
    return own


def replayed(settings: Config, arch: str) -> UserError:
    """Return the error of a GPU that is to measure an arch whose times are replayed."""
    device = settings.benchmark.device
    measure = ", or to measure them write replays: {} into it" if _can_be_measured(arch, device) else ""
    return UserError(
        f"benchmark.device is {device}, but the times of {arch} are replayed from {settings.replays[arch]}; leave out "
        f"the configuration that sets benchmark{measure}"
    )


def _can_be_measured(arch: str, device: str) -> bool:
    """Return whether kernels of an arch are made here, or offered by a library on this device."""
    library = library_of_arch(arch)
    return device == "cuda" if library.offered else library.sweep is not None


def refusal(settings: Config, arch: str) -> str:
    """Return why ``tileseer run --arch`` cannot make models of an arch; empty where it can."""
    try:
        if arch in settings.replays:
            recorded_operations(settings.replays, arch)
            return ""
        library = library_of_arch(arch)
        if not _can_be_measured(arch, settings.benchmark.device):
            return f"no recording of it is under replays, and {library.title}'s kernels are not simulated"
        if library.offered:
            return ""
        if arch not in settings.benchmark.products:
            return f"no GPU in benchmark.products stands for it (for yours write there {arch}: PRODUCT)"
        configs = settings.configs
        if configs.rule_set not in RULE_SETS:
            operations = tuple(settings.operations or OPERATIONS)
            flagged = tuple(configs.include_flagged)
            _enumerate_all(configs.rule_set, settings.arch_specs, arch, operations, tuple(configs.ndims), flagged)
    except UserError as error:
        return str(error)
    return ""


@cache
def _enumerate_all(
    rule_set: str, specs: str, arch: str, operations: Sequence[str], ndims: Sequence[int], flagged: Sequence[str]
) -> None:
    """Raise a ``UserError`` where a rule set has no kernel for an operation of an arch."""
    configs = Config().configs.model_copy(update={"ndims": list(ndims), "include_flagged": list(flagged)})
    kernels = RuleSet(rule_set, find_file(Path("config/rule_sets")), None, ArchSpecs.load(Path(specs)))
    for operation in operations:
        kernels.enumerate_kernels(arch, Operation.parse(operation), configs)


def configured() -> Config:
    """Return the configuration of the working folder, or else the defaults."""
    with suppress(UserError, OSError):
        return check(read_yaml(find_file(Path("config/config.yaml")))).located(str(workflow_folder()))
    return Config().located(str(workflow_folder()))


def vendor_models(arch: str) -> str | None:
    """Return the arch of the vendor's library for the same GPU, as ``vendor_arch``; None where nothing makes models."""
    vendor = vendor_arch(arch)
    return vendor if vendor and not refusal(configured(), vendor) else None


def way_to_models(arch: str, settings: Config | None = None) -> str:
    """Return which command makes models of an arch, or of another one for its GPU, or which archs have models."""
    settings = settings or configured()
    if not refusal(settings, arch):
        return f"make them: tileseer run --arch {arch}"
    known = [
        one for one in dict.fromkeys([*settings.replays, *settings.benchmark.products]) if not refusal(settings, one)
    ]
    gpu, kernels_of = target(arch), library_of_arch(arch)
    own = [one for one in known if target(one) == gpu]
    if near := is_it(arch, own, 0.9):
        return near.removeprefix("; ")
    if own and kernels_of not in installed_words().values():
        return f"of this GPU there are {', '.join(own)}"
    # Another letter is a mistake, unless there is such a GPU: sm_80 is none for sm_90.
    near = "" if own else is_it(gpu, [one for one in known if one.startswith("gfx")], 0.81).removeprefix("; ")
    for word, library in installed_words().items():
        if fnmatchcase(gpu, library.installed_gpus):
            times = f"models of the times of the {library.title} that is installed"
            return f"{near and f'{near} If not, '}{times}: tileseer run --arch {word} --gpu {gpu}"
    return near or f"there are {', '.join(known)}"


def other_dtype(settings: Config, arch: str, operation: str) -> str | None:
    """Return the operation with the other 16-bit data type, where a library's candidates mean the same in both."""
    direction, _, dtype = operation.rpartition("_")
    other = f"{direction}_{dict(bf16='fp16', fp16='bf16').get(dtype)}"
    replays = settings.replays
    available = recorded_operations(replays, arch) if arch in replays else operations_of(settings, arch)
    return other if library_of_arch(arch).offered and other in available else None
