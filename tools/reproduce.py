"""Make the models of config/reproduce.yaml in a folder of their own and compare their hashes with the committed."""

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tileseer.core.errors import UserError, reports_user_errors
from tileseer.core.seal import file_digest
from tileseer.learn.model_files import PROVENANCE, read_index

ROOT = Path(__file__).parents[1]
PARTS = ("Snakefile", "config", "envs", "profiles", "src", "workflow", "pyproject.toml")
OVERLAY = Path("config/reproduce.yaml")
MANIFEST = ROOT / "config/reproduce.json"
MODELS = "results/models/gfx950"
STAGES = ("problems", "configs", "headers", "build", "support", "datasets", "training", "serving", "evaluation")
"""Folders of results, in the order in which the stages make them."""


@reports_user_errors
def main() -> int:
    """Compare, or write the manifest with ``--update``; return 1 if a hash differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--update", action="store_true", help=f"write {MANIFEST.relative_to(ROOT)} instead")
    args = parser.parse_args()
    found = made()
    if args.update:
        MANIFEST.write_text(json.dumps(found, indent=2, sort_keys=True) + "\n")
        print(f"{MANIFEST.relative_to(ROOT)}: {len(found['models'])} files")
        return 0
    if not MANIFEST.exists():
        raise UserError(f"{MANIFEST.relative_to(ROOT)}: there is no such file; write it with make reproduce-update")
    expected = json.loads(MANIFEST.read_text())
    differ = list(differences(expected, found))
    for line in differ:
        print(line)
    if differ:
        first = [stage for stage in STAGES if expected.get("stages", {}).get(stage) != found["stages"][stage]]
        print(f"first stage with other results: {first[0] if first else 'publish'}")
        print("not reproduced; if the change is meant, write the manifest anew with make reproduce-update")
    else:
        print(f"reproduced: {len(found['models'])} files of {MODELS} have the committed hashes")
    return int(bool(differ))


def made() -> dict[str, Any]:
    """Content of the manifest: hashes of the inputs, of what the stages made, and of the models."""
    with tempfile.TemporaryDirectory(prefix="tileseer-reproduce-") as name:
        folder = Path(name)
        for part in PARTS:
            source = ROOT / part
            if source.is_dir():
                shutil.copytree(source, folder / part, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
            else:
                shutil.copy2(source, folder / part)
        command = [
            str(Path(sys.executable).parent / "snakemake"), "--workflow-profile", "profiles/ci",
            "--configfile", str(OVERLAY), "--", MODELS,
        ]  # fmt: skip
        if subprocess.run(command, cwd=folder).returncode:
            raise UserError("the workflow failed; see above")
        models = read_index(folder / MODELS).sha256
        # It names the commit and the packages, which may be others.
        models.pop(PROVENANCE)
        stages = {stage: digest_of_folder(folder / "results" / stage) for stage in STAGES}
    return {
        "config": {name: file_digest(ROOT / name) for name in ("config/config.yaml", OVERLAY.as_posix())},
        "environment": file_digest(ROOT / "envs/requirements.lock"),
        "stages": stages,
        "models": models,
    }


def differences(expected: dict[str, object], found: dict[str, object], where: str = "") -> list[str]:
    """One line for each hash that is not the committed one."""
    lines = []
    for name in sorted({*expected, *found}):
        ours, theirs = found.get(name), expected.get(name)
        if isinstance(ours, dict) and isinstance(theirs, dict):
            lines += differences(theirs, ours, f"{where}{name}: ")
        elif ours != theirs:
            lines.append(f"{where}{name}: {ours or 'absent'}, but {theirs or 'absent'} is committed")
    return lines


def digest_of_folder(folder: Path) -> str:
    """SHA-256 of the names and contents of the files below a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    lines = [f"{path.relative_to(folder).as_posix()} {file_digest(path)}\n" for path in files]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


if __name__ == "__main__":
    raise SystemExit(main())
