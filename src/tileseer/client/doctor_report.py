"""One file for a bug report: what the doctor found, the settings and the ends of logs, without private names."""

import getpass
import importlib.metadata
import json
import os
import re
import socket
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tileseer.client.doctor import Finding
from tileseer.core.atomic import write_text
from tileseer.devices.harness.visible import VARIABLES
from tileseer.settings.config import Config

LOGS, LINES = 3, 40
"""How many logs, the newest, and how many lines of each."""
_UUID = re.compile(r"GPU-[0-9a-fA-F-]{8,}")
_FOLDERS = re.compile(r"(?<![\w.])/(?!(?:opt|usr|dev|sys|proc|var/lock)/)(?:[^\s/\"':,;]+/)+")
"""Of a path that is not the system's."""
_MAIL = re.compile(r"[\w.+-]+@[\w-]+\.[\w.-]+")


def write(path: Path, findings: Sequence[Finding], config: Config, folder: Path) -> None:
    """Write the report; ``folder`` is where the workflow ran."""
    newest = sorted(folder.glob("logs/**/*.log"), key=lambda log: log.stat().st_mtime_ns, reverse=True)[:LOGS]
    logs = {log.relative_to(folder).as_posix(): log.read_text(errors="replace").splitlines()[-LINES:] for log in newest}
    content = {
        "tileseer": importlib.metadata.version("tileseer"),
        "findings": [asdict(finding) for finding in findings],
        "environment": {name: os.environ[name] for name in VARIABLES["hip"] if name in os.environ},
        "settings": config.model_dump(mode="json", exclude_unset=True),
        "logs": logs,
    }
    write_text(path, without_names(json.dumps(content, indent=1)) + "\n")


def without_names(text: str) -> str:
    """The text without folders that are not the system's, user, machine, UUIDs of GPUs and mail addresses."""
    private = [(str(Path.cwd()), "FOLDER"), (str(Path.home()), "HOME"), (getpass.getuser(), "USER")]
    private += [(name, "MACHINE") for name in (socket.getfqdn(), socket.gethostname())]
    for found, word in private:
        if len(found) > 1:
            text = re.sub(rf"(?<![\w-]){re.escape(found)}(?![\w-])", word, text)
    for pattern, word in ((_FOLDERS, "PATH/"), (_UUID, "GPU-UUID"), (_MAIL, "MAIL")):
        text = pattern.sub(word, text)
    return text
