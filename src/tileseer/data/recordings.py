"""Which operations an arch has, and which other data type says something of one."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from tileseer.core.errors import UserError
from tileseer.data import dataset_files
from tileseer.facts.config import Config
from tileseer.facts.operations import OPERATIONS
from tileseer.libraries.registry import library_of_arch


def recorded_operations(replays: Mapping[str, str], arch: str) -> list[str]:
    """Return the operations of an arch's recording; a ``UserError`` names one that is missing or damaged."""
    folder = Path(replays[arch])
    if not (folder / dataset_files.FILE).exists():
        raise UserError(
            f"{folder / dataset_files.FILE}: there is no such file, but replays names it for {arch}; an installed "
            "package has no recordings: copy config/recorded of the repository into this folder, or give replays "
            "another folder"
        )
    return dataset_files.read_recording(folder).operations


def operations_of(settings: Config, arch: str) -> Sequence[str]:
    """Return the operations of an arch: those of the settings; of a recording those that it has, or all."""
    if arch not in settings.replays:
        if arch not in settings.benchmark.products:
            known = ", ".join(dict.fromkeys([*settings.benchmark.products, *settings.replays]))
            raise UserError(
                f"arch: {arch} has no GPU in benchmark.products that stands for it; give it one, or take one of {known}"
            )
        return settings.operations or OPERATIONS
    recorded = recorded_operations(settings.replays, arch)
    # An operation that was not recorded stays where nothing else is left: its job says so.
    requested = settings.operations or recorded
    return [each for each in requested if each in recorded] or requested


def other_dtype(settings: Config, arch: str, operation: str) -> str | None:
    """Return the operation with the other 16-bit data type, where a library's candidates mean the same in both."""
    direction, _, dtype = operation.rpartition("_")
    other = f"{direction}_{dict(bf16='fp16', fp16='bf16').get(dtype)}"
    replays = settings.replays
    available = recorded_operations(replays, arch) if arch in replays else operations_of(settings, arch)
    return other if library_of_arch(arch).offered and other in available else None
