"""``tileseer export miopen``: a model's choices for MIOpen."""

import argparse
from pathlib import Path

from tileseer.cli import options
from tileseer.core.errors import UserError
from tileseer.learn import model_files
from tileseer.libraries.miopen import export as miopen_export
from tileseer.libraries.miopen.export import Settings
from tileseer.libraries.miopen.find_db import FileName
from tileseer.libraries.problem_lists import read_problem_lists
from tileseer.problems.operation import Operation
from tileseer.problems.problem import LAYOUTS

SUMMARY = "a user find-db, which MIOpen reads: for PyTorch on ROCm without code"
EXAMPLES = (
    "tileseer export miopen results/models/gfx90a_miopen --problems training.log \\\n"
    "      --user gfx90a68.HIP.3_2_0_36bb7fd4a.ufdb.txt --system gfx90a68.HIP.fdb.txt --output miopen-db",
)


def configure(own: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    options.add_models(own)
    meaning = "CSV of layers or problems, lines of MIOpenDriver, or a log with such lines (MIOPEN_ENABLE_LOGGING_CMD=1)"
    own.add_argument("--problems", nargs="+", required=True, type=Path, metavar="FILE", help=meaning)
    meaning = "user find-db that your MIOpen wrote below ~/.config/miopen: the output has its name and its records"
    own.add_argument("--user", required=True, type=Path, metavar="UFDB", help=meaning)
    own.add_argument("--output", required=True, type=Path, metavar="DIR", help="folder for the file")
    meaning = "find-db of the installation (share/miopen/db): what it has measured is left out"
    own.add_argument("--system", nargs="+", default=[], type=Path, metavar="FDB", help=meaning)
    meaning = "also write what the installation's database or the model's recording has measured"
    own.add_argument("--measured", action="store_true", help=meaning)
    meaning = "only what tileseer tune --driver timed on this GPU, with the measured times"
    own.add_argument("--tuned", action="store_true", help=meaning)
    options.add_layout(own)
    own.add_argument("--top", type=options.positive, default=4, help="most solvers of a problem (default: 4)")
    meaning = "most workspace of a solver (default: 4)"
    own.add_argument("--workspace", type=options.positive, default=4, metavar="GIB", help=meaning)
    own.add_argument("--build", default="", metavar="VERSION", help="refuse a --user of another build of MIOpen")
    own.epilog = "MIOpen takes the first solver of a record that it can run. See docs/amd.md on what to set."


def run(args: argparse.Namespace) -> int:
    """Write the file and print how MIOpen finds it; return 1 if the models add nothing to it."""
    FileName.parse(args.user)  # another name is refused even where there is no such file
    if not args.user.is_file():
        raise UserError(
            f"--user {args.user}: there is no such file; run one convolution, and your MIOpen writes it below "
            "~/.config/miopen"
        )
    index = model_files.read_index(args.models)
    # MIOpenDriver takes tensors whose layout a line leaves open as NCHW.
    listed = read_problem_lists(args.problems, [Operation.parse(name) for name in index.operations], LAYOUTS[0])
    layout = (args.layout or "").replace("D", "")
    settings = Settings(
        args.user, args.build, args.system, args.measured, layout, args.workspace << 30, args.tuned, args.top
    )
    export = miopen_export.export_models(args.models, list(listed.problems), settings)
    path = miopen_export.write_export(args.output, args.user.name, export)
    notes = listed.notes
    if not args.system:
        notes.append("without --system, predictions also replace what only the installation has measured")
    content = {
        "file": path,
        "arch": index.arch,
        "taken": export.taken,
        "problems": len(listed.problems),
        "kept": export.kept,
        "written": len(export.lines) - export.kept,
        "entries": export.entries,
        "left_out": dict(export.left_out.most_common()),
        "refused": dict(listed.refused.most_common()),
        "notes": notes,
    }
    lines = [
        f"{path}: {content['written']:,} records with {export.entries:,} solvers, behind {export.kept:,} of --user",
        *dict.fromkeys(line for taken in export.taken.values() for line in options.taken_lines(taken)),
        *(f"left out {count:,}: {reason}" for reason, count in export.left_out.most_common()),
        *(f"refused {count:,} lines: {reason}" for reason, count in listed.refused.most_common()),
        *(f"note: {note}" for note in notes),
        f"to use it: export MIOPEN_USER_DB_PATH={args.output.absolute()}; to undo it: unset MIOPEN_USER_DB_PATH",
    ]
    return options.answer(args, content, lines, not content["written"])
