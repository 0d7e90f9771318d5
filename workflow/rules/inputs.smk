# Inputs that depend on the arch: recordings, and the tables that models were made from.
import json
import re

from tileseer.devices.base import NO_TIMES
from tileseer.devices.harness.telemetry import refuse_other_gpus
from tileseer.families.registry import of_arch
from tileseer.gpu.hardware import target

RECORDINGS = SETTINGS.replays
RECORDED = "|".join(map(re.escape, RECORDINGS)) or "(?!)"


def recorded_operations(arch):
    """Operations of a recording."""
    with open(f"{RECORDINGS[arch]}/recording.json") as file:
        return json.load(file)["operations"]


def operations_of(wildcards):
    """Operations of an arch: those of the settings; of a recording those that it has, or all."""
    if wildcards.arch not in RECORDINGS:
        return SETTINGS.operations or OPERATIONS
    recorded = recorded_operations(wildcards.arch)
    # What was not recorded stays where nothing else is left: its job says so.
    wanted = SETTINGS.operations or recorded
    return [each for each in wanted if each in recorded] or wanted


def recorded_elsewhere(arch, operation):
    """Recorded archs with the GPU target and the kernel family of an arch: its model is checked on their times."""
    return [
        other
        for other in RECORDINGS
        if arch not in RECORDINGS
        and (target(other), of_arch(other)) == (arch, of_arch(arch))
        and operation in recorded_operations(other)
    ]


def other_dtype(arch, operation):
    """The operation of the other 16-bit data type, where a library's candidates mean the same in both."""
    direction, _, dtype = operation.rpartition("_")
    other = f"{direction}_{dict(bf16='fp16', fp16='bf16').get(dtype)}"
    offered = of_arch(arch).offered and arch in RECORDINGS
    return [other] if offered and other in recorded_operations(arch) else []


def recording(wildcards):
    """Table that the device replays, if it is one that does."""
    if SETTINGS.benchmark.device != "recorded":
        return []
    return [f"config/recordings/{product(wildcards)}/{wildcards.operation}.parquet"]


def measuring_driver(wildcards):
    """The driver, on a real GPU. That this machine's GPUs are of another arch is said before anything is compiled."""
    if EMULATED:
        raise WorkflowError(f"benchmark.device is emulated: {NO_TIMES}")
    executor = workflow.executor_plugin
    # Where SLURM's jobs are submitted from, other GPUs may be.
    if executor is None or executor.name != "slurm":
        try:
            refuse_other_gpus(SETTINGS.benchmark.device, wildcards.arch)
        except UserError as error:
            raise WorkflowError(str(error)) from None
    return expand(DRIVER, arch=wildcards.arch)


def executed(wildcards):
    """Verdicts of all chunks; only an emulated device has some."""
    if not EMULATED:
        raise WorkflowError(
            f"results/verdicts/{wildcards.arch}.tsv: benchmark.device is {SETTINGS.benchmark.device}; verdicts come "
            "from the emulated device: add --configfile config/emulated.yaml"
        )
    return each_operation(*each_chunk(VERDICTS))(wildcards)


def recording_of(arch, operation):
    """Files of a recording that the dataset of one operation is made from."""
    tables = (
        f"{operation}/{name}.parquet" for name in ("kernels", "pairs", "problems")
    )
    return [f"{RECORDINGS[arch]}/{name}" for name in ("recording.json", *tables)]


def made_from(wildcards):
    """Tables that the models were made from, those of one operation after the other; a recorded arch has datasets alone."""
    tables = ["results/datasets/{arch}/{operation}.parquet"]
    if wildcards.arch not in RECORDINGS:
        tables += [
            "results/problems/{operation}.parquet",
            "results/configs/{arch}/{operation}.parquet",
        ]
    return [
        path
        for each in operations_of(wildcards)
        for path in expand(tables, arch=wildcards.arch, operation=each)
    ]


def files_read(wildcards):
    """Tables that the stages of an arch read and none of them made; no scripts, which are code."""
    replaying = "recorded problems model baseline validation serving".split()
    recorded = wildcards.arch in RECORDINGS
    found = {
        path
        for name, paths in READS.items()
        if name in replaying or not recorded
        for path in paths
    }
    found = {path for path in found if not path.startswith(source("workflow") + "/")}
    for each in operations_of(wildcards):
        of = [wildcards.arch] if recorded else recorded_elsewhere(wildcards.arch, each)
        found |= {path for arch in of for path in recording_of(arch, each)}
    return sorted(found)


def recording_shown(wildcards):
    """Folder of the recording that is replayed, or nothing."""
    return [RECORDINGS[wildcards.arch]] if wildcards.arch in RECORDINGS else []


def recorded_tables(wildcards):
    """How a recording was made, and what its kernels are compared with, where it has that."""
    folder = RECORDINGS.get(wildcards.arch)
    names = ["recording.json"]
    names += [
        f"{each}/{name}"
        for each in operations_of(wildcards)
        for name in ("cudnn.csv", "rivals.parquet")
    ]
    return [
        f"{folder}/{name}"
        for name in names
        if folder and os.path.exists(f"{folder}/{name}")
    ]
