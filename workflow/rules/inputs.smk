# Inputs and parameters that depend on the arch: operations, recordings, and the tables that models were made from.
from tileseer.data import recordings
from tileseer.libraries.registry import files_of_times, library_of_arch
from tileseer.measure.device import NO_TIMES

RECORDINGS = SETTINGS.replays
RECORDED = "|".join(map(re.escape, RECORDINGS)) or "(?!)"


def ask(function, *arguments):
    """What a function of the package answers; a user's mistake is one line."""
    try:
        return function(*arguments)
    except UserError as error:
        raise WorkflowError(str(error)) from None


def operations_of(wildcards):
    """Operations of an arch."""
    return ask(recordings.operations_of, SETTINGS, wildcards.arch)


# Those that this call is about, for its closing summary, and whether it is about their models too.
ARCHS = {}


def summarized(with_models):
    """No files: the closing summary will be about an arch."""

    def note(wildcards):
        if wildcards.arch not in (ASKED.arch, *ARCHS):
            ask(preflight.refuse_arch, SETTINGS, wildcards.arch, Path(RULE_SETS))
        ARCHS[wildcards.arch] = with_models or ARCHS.get(wildcards.arch, False)
        return []

    return note


def models_of_trial(wildcards):
    """No files, but where the models of a trial are."""
    own = f"results/models/{SETTINGS.published_as(wildcards.arch)}"
    raise WorkflowError(
        f"this configuration is a trial (publish.name, model.learner), whose models are {own}: make these"
    )


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
    return [outside(path) for path in files] if recorded else files


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
    found = files_of_times(Path(f"{RECORDINGS.get(wildcards.arch)}", wildcards.operation))
    return [outside(path) for path in found]


def network_uses(wildcards):
    """Which network needs which problem, where that is known."""
    if not library_of_arch(wildcards.arch).has_networks:
        return []
    return f"results/problems/{wildcards.operation}.uses.parquet"


def other_dtype(wildcards):
    """Dataset of the other 16-bit data type, where it says something of this one."""
    other = ask(recordings.other_dtype, SETTINGS, wildcards.arch, wildcards.operation)
    return dataset_files(wildcards.arch, other) if other else []


def made_from(wildcards):
    """Tables that the models were made from, those of one operation after the other; a recorded arch has datasets alone."""
    # Publishing refuses as well; here it costs no run.
    from tileseer.serve.publication import refuse_replacement

    kind = "recorded" if wildcards.arch in RECORDINGS else "measured" if MEASURED else "simulated"
    models = Path("results/models", SETTINGS.published_as(wildcards.arch))
    ask(refuse_replacement, models, wildcards.arch, kind, SETTINGS.publish.replace)
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
    arch = wildcards.arch
    read = {HARDWARE, COEFFICIENTS, API, *PROBLEM_TABLES, *PRIOR_FILES}
    if arch not in RECORDINGS:
        read |= {ARCH_SPECS, *RULE_TABLES}
    else:
        read |= {path for each in operations_of(wildcards) for path in dataset_files(arch, each)}
    return sorted(read)
