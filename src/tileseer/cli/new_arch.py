"""``tileseer new-arch``: add a GPU target to the table of arch facts, and list the next steps."""

import argparse
from pathlib import Path

from tileseer.cli import options
from tileseer.core.atomic import write_text
from tileseer.core.places import find
from tileseer.gpus import arch_template

TABLE = "arch_specs.json"
EXAMPLES = (
    "tileseer new-arch gfx951 --like gfx950 --product 'an accelerator to come' --lds-kib 192",
    "tileseer new-arch gfx951 --like gfx950 --print",
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("name", metavar="NAME", help="the new target, for example gfx951")
    parser.add_argument("--like", required=True, metavar="ARCH", help="the known target whose entry is copied")
    parser.add_argument("--family", help="if it differs: one of the families of the table")
    parser.add_argument("--product", help="if it differs: a description of the target")
    parser.add_argument("--wave-size", type=int, metavar="N", help="if it differs: lanes of a wave, 32 or 64")
    parser.add_argument("--lds-kib", type=int, metavar="N", help="if it differs: LDS of a compute unit")
    parser.add_argument("--print", action="store_true", help="print the entry; write nothing")
    options.add_tables(parser)
    parser.epilog = "Waves and warp tiles are those of the known target: correct them in the table."


def run(args: argparse.Namespace) -> int:
    """Write or print the entry; list the next steps."""
    path: Path = args.config / TABLE
    changes = {field: getattr(args, field) for field in arch_template.FIELDS if getattr(args, field) is not None}
    text, entry = arch_template.table_with(find(path), args.name, args.like, changes)
    if not args.print:
        write_text(path, text)
    steps = _steps(args.name, args.like, args.config)
    content = {"arch": args.name, "table": path, "written": not args.print, "entry": entry, "next": steps}
    differs = ", ".join(changes) or "nothing"
    said = entry if args.print else f"{path}: {args.name} is there, as {args.like} but for {differs}"
    numbered = [f"{number}. {step}" for number, step in enumerate(steps, start=1)]
    return options.answer(args, content, [said, "Next:", *numbered])


def _steps(name: str, like: str, config: Path) -> list[str]:
    return [
        f"correct waves, warp_tiles and preshuffle_warp_tiles of {name} in {config / TABLE}; their order is the order "
        "of enumeration",
        f"see its kernels: tileseer codegen --arch {name} --rule-set full --list-configs",
        f"add a product with arch: {name} to {config / 'hardware.yaml'}, whose head explains the fields (copy one of "
        f"{like})",
        f"name that product in {config / 'config.yaml'}: benchmark.products.{name}",
        f"run it: snakemake --cores all results/models/{name} (docs/CONTRIBUTING.md)",
    ]
