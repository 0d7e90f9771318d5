"""The words of a request for kernels: named rule sets, and the options that give one kernel by its fields.

Free of heavy imports: the command reads this before all else.
"""

import argparse
from typing import Any

from tileseer.core.errors import UserError
from tileseer.facts.operations import VARIANTS
from tileseer.libraries.ck_tile.pipelines import ALWAYS_DOUBLE_LDS

NDIMS = (1, 2, 3)
DEPTHWISE = "forward_depthwise"
"""Asks for the depthwise kernels of a set alone; ``forward`` has them too, but not in ``BUILDER_SETS``."""
REQUESTED_VARIANTS = (*VARIANTS, DEPTHWISE)

_BOOLEANS = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}

DEFAULT_FIELDS: dict[str, Any] = {
    "tile_m": 128, "tile_n": 128, "tile_k": 64, "wave_m": 2, "wave_n": 2, "wave_k": 1,
    "warp_tile_m": 32, "warp_tile_n": 32, "warp_tile_k": 16, "vec_a": 4, "vec_b": 8, "vec_c": 8,
    "pipeline": "compv4", "scheduler": "intrawave", "epilogue": "cshuffle", "specialization": "default",
    "num_wave_groups": 1, "num_groups_to_merge": 1, "pad_m": True, "pad_n": True, "pad_k": True,
    "double_smem_buffer": None, "split_image": False, "two_stage": False, "explicit_gemm": False,
    "streamk_enabled": False, "streamk_reduction": "tree", "streamk_persistent": False,
}  # fmt: skip
"""What a field is where no option gives it; ``double_smem_buffer`` follows the pipeline."""

_OTHER_WORDS = {"wave": "warp", "vec": "vector"}
"""What the upstream generator's options call a part of a field's name."""


def _options(field: str) -> list[str]:
    """Return the options that give a field, the first one for messages."""
    if field == "streamk_reduction":
        return ["--streamk-reduction-strategy"]
    own = field.replace("_", "-")
    first, dash, rest = own.partition("-")
    return list(dict.fromkeys((f"--{_OTHER_WORDS.get(first, first)}{dash}{rest}", f"--{own}")))


_OPTIONS = {field: _options(field) for field in DEFAULT_FIELDS}
_HELP = {"wave": "waves per block", "tile": "block tile", "warp": "warp tile", "vec": "elements a vector access"}


def boolean(text: str) -> bool:
    """Read true or false; any other word is a mistake."""
    if text.lower() not in _BOOLEANS:
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return _BOOLEANS[text.lower()]


def add_field_options(parser: argparse._ActionsContainer) -> None:
    """Declare the options; each has None where it is not given."""
    for field, names in _OPTIONS.items():
        default = DEFAULT_FIELDS[field]
        if isinstance(default, bool) or default is None:
            shown = "on with compv4 and comp_async" if default is None else str(default).lower()
            form: dict[str, Any] = {"type": boolean, "nargs": "?", "const": True, "metavar": "true|false"}
            parser.add_argument(*names, dest=field, help=f"default: {shown}", **form)
        elif isinstance(default, int):
            text = _HELP.get(field.split("_")[0], "")
            parser.add_argument(*names, dest=field, type=int, metavar="N", help=f"{text} (default: {default})".strip())
        else:
            parser.add_argument(*names, dest=field, type=str.lower, metavar="WORD", help=f"default: {default}")


def given_fields(args: argparse.Namespace) -> dict[str, Any]:
    """Return the fields that an option was given for; none means that no single kernel is asked for."""
    return {field: getattr(args, field) for field in _OPTIONS if getattr(args, field) is not None}


def option_of(field: str) -> str:
    """Return the option that gives a field."""
    return _OPTIONS[field][0]


def kernel_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of ``KernelConfig`` except variant, dtype, layout and ndim, with the defaults filled in."""
    values = DEFAULT_FIELDS | fields
    if values["double_smem_buffer"] is None:
        values["double_smem_buffer"] = values["pipeline"] in ALWAYS_DOUBLE_LDS
    enabled = values.pop("streamk_enabled")
    strategy = values.pop("streamk_reduction")
    dangling = [field for field in ("streamk_reduction", "streamk_persistent") if fields.get(field)]
    if dangling and not enabled:
        raise UserError(f"{option_of(dangling[0])} sets how stream-K reduces: add --streamk-enabled true")
    return values | {"streamk": strategy if enabled else "none"}
