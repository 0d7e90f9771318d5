"""The file of a stage: its settings, digests of its code and of the tables it reads, versions of packages it uses.

It is written when Snakemake reads the workflow, and only if its content changes. As an ordinary input of the rule it
carries every change by its time stamp; where Snakemake's records are lost or time stamps lie, by its content.
"""

import hashlib
import json
import shlex
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tileseer.core import modules
from tileseer.core.atomic import write_text
from tileseer.core.places import PACKAGE
from tileseer.core.stage_store import digest

_digest = cache(digest)


def content(script: Path, settings: Mapping[str, Any], reads: Iterable[str], known: Mapping[str, str]) -> str:
    """Text of the file of the stage of ``script``.

    ``reads`` are files that the stage reads and no stage makes, ``known`` is what else decides about its outputs.
    """
    source = PACKAGE.parent
    used, packages = modules.used_by(script, source), modules.packages_used_by(script, source)
    # The order and the folder that the files lie in do not count.
    code = sorted(f"{path.name} {_digest(path)}\n" for path in (script, *used))
    made = {
        "stage": script.stem,
        "settings": settings,
        "known": known,
        "code": hashlib.sha256("".join(code).encode()).hexdigest(),
        "reads": {path: _digest(Path(path)) for path in sorted(reads)},
        "packages": {name: version for name in sorted(packages) if (version := modules.version(name))},
        "python": ".".join(map(str, sys.version_info[:2])),
    }
    return json.dumps(made, indent=1, sort_keys=True) + "\n"


def write(path: Path, text: str, may_write: bool = True) -> str:
    """Write the text if it is not there, and if this is the process that may; return its SHA-256."""
    if may_write and not (path.is_file() and path.read_text() == text):
        write_text(path, text)
    return hashlib.sha256(text.encode()).hexdigest()


def command_line(script: str, options: Iterable[tuple[str, Any]], wildcards: Any) -> str:
    """Words for a shell: the script, and an option for each name; empty ones are left out.

    A value is a text or a list of them, or a function of the wildcards that gives it. A name of a wildcard in braces
    stands for its value.
    """
    words = [script]
    for name, value in options:
        given = value(wildcards) if callable(value) else value
        texts = [given] if isinstance(given, str) else [str(text) for text in given]
        for wildcard, its_value in wildcards.items():
            texts = [text.replace(f"{{{wildcard}}}", its_value) for text in texts]
        words += ["--" + name.replace("_", "-"), *texts] if texts else []
    return shlex.join(words)
