"""The rule sets that have a name, those of the reference generator. Free of heavy imports."""

TABLE_SETS = ("default", "full", "full-tests", "tiny")
"""Sets that are tables of ``config/rule_sets``."""
BUILDER_SETS = ("profiler", "tests")
"""Sets that are read from a Composable Kernel checkout."""
RULE_SETS = (*TABLE_SETS, *BUILDER_SETS)
