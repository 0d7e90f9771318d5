"""The words that operations and rule sets are named with. Free of heavy imports."""

from typing import Literal, get_args

Variant = Literal["forward", "bwd_data", "bwd_weight"]
VARIANTS: tuple[Variant, ...] = get_args(Variant)
ELEMENT_BYTES = {"fp16": 2, "bf16": 2, "fp32": 4}
"""Bytes of one tensor element by data type; their order is that of the driver's interface (``tileseer_conv.h``)."""
DTYPES = tuple(ELEMENT_BYTES)
OPERATION_PATTERN = f"(?:{'|'.join(VARIANTS)})_(?:{'|'.join(DTYPES)})"
OPERATIONS = ("forward_bf16", "bwd_data_bf16", "bwd_weight_bf16")
"""What is learnt of an arch that was not recorded, unless ``operations`` says otherwise."""
TABLE_SETS = ("default", "full", "full-tests", "tiny")
"""Rule sets of the reference generator that are tables of ``config/rule_sets``."""
BUILDER_SETS = ("profiler", "tests")
"""Those that are read from a Composable Kernel checkout."""
RULE_SETS = (*TABLE_SETS, *BUILDER_SETS)
