# Inputs and parameters that depend on the arch: operations, recordings, and the tables that models were made from.
from tileseer.core.documents import read_json
from tileseer.core.errors import shown
from tileseer.gpus.hardware import target
from tileseer.kernels.libraries import library_of_arch
from tileseer.measure.device import NO_TIMES

RECORDINGS = SETTINGS.replays
RECORDED = "|".join(map(re.escape, RECORDINGS)) or "(?!)"


def recorded_operations(arch):
    """Operations of a recording."""
    path = Path(RECORDINGS[arch], "recording.json")
    if not path.exists():
        raise WorkflowError(
            f"{path}: there is no such file, but replays names it for {arch}; an installed package has no recordings: "
            "copy config/recorded of the repository into this folder, or give replays another folder"
        )
    try:
        content = read_json(path)
    except UserError as error:
        raise WorkflowError(str(error)) from None
    operations = content.get("operations") if isinstance(content, dict) else None
    words = operations if isinstance(operations, list) else [None]
    if not all(re.fullmatch(OPERATION_PATTERN, str(word)) for word in words):
        raise WorkflowError(
            f"{path}: operations: should be a list such as [forward_bf16], but it is {shown(operations)}"
        )
    return operations


def operations_of(wildcards):
    """Operations of an arch: those of the settings; of a recording those that it has, or all."""
    if wildcards.arch not in RECORDINGS:
        return SETTINGS.operations or OPERATIONS
    recorded = recorded_operations(wildcards.arch)
    # An operation that was not recorded stays where nothing else is left: its job says so.
    requested = SETTINGS.operations or recorded
    return [each for each in requested if each in recorded] or requested


# Those that this call is about, for its closing summary.
ARCHS = set()


def summarized(wildcards):
    """No files: the closing summary will be about this arch."""
    ARCHS.add(wildcards.arch)
    return []


def each_operation(*patterns):
    """Files of an arch: one per operation and pattern."""
    return lambda wildcards: expand(patterns, operation=operations_of(wildcards), arch=wildcards.arch)


def folders_of(name):
    """Folders of the files of a named input, each once, in their order."""
    return lambda wildcards, input: list(dict.fromkeys(str(Path(path).parent) for path in input[name]))


def product(wildcards):
    """GPU product that stands for an arch; the scripts explain that there is none."""
    return SETTINGS.benchmark.products.get(wildcards.arch, "none")


def measuring_driver(wildcards):
    """The driver, on a real GPU."""
    if EMULATED:
        raise WorkflowError(f"benchmark.device is emulated: {NO_TIMES}")
    return expand(DRIVER, arch=wildcards.arch)


def verdicts_of_arch(wildcards):
    """Verdicts of all chunks; only an emulated device has some."""
    if not EMULATED:
        raise WorkflowError(
            f"results/verdicts/{wildcards.arch}.tsv: benchmark.device is {DEVICE}; verdicts come "
            "from the emulated device: add --configfile config/emulated.yaml"
        )
    return each_operation(*each_chunk(rules.verdicts.output.verdicts))(wildcards)


def dataset_files(arch, operation):
    """The tables of a dataset, and what describes them; of an arch of replays those of its recording."""
    recorded = arch in RECORDINGS
    above = RECORDINGS[arch] if recorded else f"results/datasets/{arch}"
    folder = f"{above}/{operation}"
    names = [f"{folder}/{name}.parquet" for name in ("problems", "kernels", "pairs")]
    files = [*names, f"{above if recorded else folder}/recording.json"]
    return [local(path) for path in files] if recorded else files


def dataset_of(wildcards):
    """Files of the dataset of one operation."""
    return dataset_files(wildcards.arch, wildcards.operation)


def datasets_of_arch(wildcards):
    """Files of the datasets of all operations of an arch."""
    arch = wildcards.arch
    return [path for each in operations_of(wildcards) for path in dataset_files(arch, each)]


def dataset_folders(name):
    """Folders of the datasets of a named input."""
    return lambda wildcards, input: [
        str(Path(path).parent) for path in input.get(name, []) if Path(path).name == "pairs.parquet"
    ]


def library_times(wildcards):
    """Times of other libraries on the problems of a recording, as far as it has them."""
    folder = f"{RECORDINGS.get(wildcards.arch)}/{wildcards.operation}"
    chosen = ["rivals.parquet", "problems.parquet"]
    names = chosen if os.path.exists(f"{folder}/rivals.parquet") else []
    names += ["cudnn.csv"] if os.path.exists(f"{folder}/cudnn.csv") else []
    return [local(f"{folder}/{name}") for name in names]


def network_uses(wildcards):
    """Which network needs which problem, where that is known."""
    if not library_of_arch(wildcards.arch).has_networks:
        return []
    return f"results/problems/{wildcards.operation}.uses.parquet"


def cudnn_times(wildcards):
    """Times of cuDNN on the problems of a recording, of each operation that has them."""
    folder = RECORDINGS.get(wildcards.arch)
    paths = [f"{folder}/{each}/cudnn.csv" for each in operations_of(wildcards)]
    return [local(path) for path in paths if folder and os.path.exists(path)]


def same_target(arch, operation):
    """Recorded archs with the GPU target and the kernels of an arch that is not recorded."""
    return [
        other
        for other in RECORDINGS
        if arch not in RECORDINGS
        and os.path.isdir(RECORDINGS[other])
        and (target(other), library_of_arch(other)) == (arch, library_of_arch(arch))
        and operation in recorded_operations(other)
    ]


def recorded_elsewhere(wildcards):
    """Recordings of the same GPU target: the model is checked on their times."""
    arch, operation = wildcards.arch, wildcards.operation
    return [path for other in same_target(arch, operation) for path in dataset_files(other, operation)]


def other_dtype(wildcards):
    """Dataset of the other 16-bit data type, where a library's candidates mean the same in both."""
    arch = wildcards.arch
    direction, _, dtype = wildcards.operation.rpartition("_")
    other = f"{direction}_{dict(bf16='fp16', fp16='bf16').get(dtype)}"
    available = operations_of(wildcards)
    if arch in RECORDINGS:
        available = recorded_operations(arch)
    return dataset_files(arch, other) if library_of_arch(arch).offered and other in available else []


def made_from(wildcards):
    """Tables that the models were made from, those of one operation after the other; a recorded arch has datasets alone."""
    if SETTINGS.model.parameters.learner:
        raise WorkflowError(
            f"model.learner: {SETTINGS.model.parameters.learner}: a learner from outside has no C++ header, so its models "
            f"are not published; ask for results/reports/{wildcards.arch}.html"
        )
    tables = []
    if wildcards.arch not in RECORDINGS:
        tables.append("results/problems/{operation}.parquet")
        if not library_of_arch(wildcards.arch).offered:
            tables.append("results/configs/{arch}/{operation}.parquet")
    return [
        path
        for each in operations_of(wildcards)
        for path in (
            *dataset_files(wildcards.arch, each),
            *expand(tables, arch=wildcards.arch, operation=each),
        )
    ]


def tables_read(wildcards):
    """Tables that the stages of an arch read and none of them made."""
    tables = {HARDWARE, COEFFICIENTS, API, *PROBLEM_TABLES, *PRIOR_FILES}
    if wildcards.arch in RECORDINGS:
        recorded = [wildcards.arch]
    else:
        tables |= {SETTINGS.arch_specs, *RULE_TABLES}
        recorded = None
    for each in operations_of(wildcards):
        for arch in recorded or same_target(wildcards.arch, each):
            tables |= {*dataset_files(arch, each)}
    return [local(path) for path in sorted(tables)]
