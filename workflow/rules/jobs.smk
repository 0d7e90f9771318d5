# How a job begins, after all stages are known: it finds the scripts and the package, and knows where the store, the locks
# and the compilers of this machine are.
os.environ |= {
    "SCRIPTS": str(source("workflow/scripts")),
    "PYTHONPATH": ":".join(
        filter(None, [str(places.PACKAGE.parent), os.environ.get("PYTHONPATH")])
    ),
    # Threads that wait must leave the cores to others: spinning, they cost more than they bring.
    "OMP_WAIT_POLICY": "passive",
    "TILESEER_RUN": RunEnvironment(SETTINGS.of_the_machine(), CODE_STATES).text(),
}
shell.prefix(f"set -euo pipefail; {runs.job_prefix(Path('.snakemake'))}")
