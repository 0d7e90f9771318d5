"""The words after ``tileseer run``: which are targets, and what the flags of Snakemake say of the configuration.

Snakemake takes every word behind ``--config``, ``--configfile`` and their like for a value of theirs, and its own
parser of ``--config`` has neither nested numbers nor dotted keys. So targets are sorted out here, and what
``--config`` sets becomes one more configuration file.
"""

import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from tileseer.config.config import Config
from tileseer.core.errors import UserError, shown
from tileseer.core.tables import check_config_file
from tileseer.core.yaml_files import parse_yaml, read_yaml

CONFIG_FILE = Path("config/config.yaml")
"""What the Snakefile reads first."""
CONFIG, CONFIG_FILES = ("--config", "-C"), ("--configfile", "--configfiles")
CORES, SNAKEFILE, QUIET = ("--cores", "-c", "--jobs", "-j"), ("--snakefile", "-s"), ("--quiet", "-q")
PAIRS = {
    "--config", "-C", "--resources", "--res", "--set-threads", "--set-resources", "--set-scatter",
    "--set-resource-scopes", "--groups", "--group-components", "--default-resources", "--default-res",
}  # fmt: skip
"""Flags of which each value is NAME=VALUE."""
LISTS = PAIRS | {
    "--configfile", "--configfiles", "--quiet", "-q", "--cache", "--preemptible-rules", "--forcerun", "-R",
    "--wait-for-files", "--envvars", "--rerun-triggers", "--consider-ancient", "--prioritize", "-P", "--until",
    "-U", "--omit-from", "-O", "--strict-dag-evaluation", "--cleanup-metadata", "--cm", "--omit-flags",
    "--unneeded-temp-files", "--allowed-rules", "--shared-fs-usage", "--logger", "--software-deployment-method",
    "--deployment-method", "--deployment", "--sdm", "--target-jobs",
}  # fmt: skip
"""Flags that take every word up to the next flag."""
BARE = {
    "--dry-run", "--dryrun", "-n", "--keep-going", "-k", "--force", "-f", "--forceall", "-F", "--touch", "-t",
    "--printshellcmds", "-p", "--rerun-incomplete", "--ri", "--ignore-incomplete", "--ii", "--notemp", "--nt",
    "--summary", "-S", "--detailed-summary", "-D", "--list-rules", "-l", "--verbose", "--nolock", "--unlock",
    "--keep-incomplete", "--use-conda", "--debug-dag", "--nocolor", "--delete-all-output",
}  # fmt: skip
"""Flags without a value that often have a target behind them."""
OWN_CORES = (*CORES, "--profile", "--workflow-profile", "-e", "--executor")
"""Flags after which this command does not choose how many jobs run side by side."""
KEY = re.compile(r"[A-Za-z_][\w-]*(\.[A-Za-z_0-9][\w-]*)*")


@dataclass
class Words:
    """What the words say."""

    targets: list[str] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)
    """The flags with their values, without those of the configuration."""
    values: dict[str, list[str]] = field(default_factory=dict)
    """The values of each flag that is written with some."""

    @classmethod
    def parse(cls, words: Sequence[str]) -> "Words":
        """Sort words; none is checked."""
        call, flag = cls(), ""
        for number, word in enumerate(words):
            if word == "--":
                call.targets += words[number + 1 :]
                break
            if word.startswith("-"):
                flag = call._begin(word)
            elif flag and call._takes(flag, word):
                call.values.setdefault(flag, []).append(word)
                call._keep(flag, word)
                flag = flag if flag in LISTS else ""
            else:
                call.targets.append(word)
        return call

    def _begin(self, word: str) -> str:
        """Take a flag; what it is called, or nothing if no value of it follows."""
        name, equals, value = word.partition("=")
        if not word.startswith("--") and len(word) > 2 and word not in (*CORES, *BARE):
            if all(f"-{letter}" in BARE for letter in word[1:]):
                name = ""
            else:
                name, equals, value = word[:2], "=", word[2:].removeprefix("=")
        if name:
            self.values.setdefault(name, [])
            self.values[name] += [value] if equals else []
        self._keep(name, word)
        return "" if equals or name in ("", *BARE) else name

    def _keep(self, flag: str, word: str) -> None:
        if flag not in (*CONFIG, *CONFIG_FILES):
            self.flags.append(word)

    def _takes(self, flag: str, word: str) -> bool:
        """Whether a word behind a flag is a value of it."""
        if flag in PAIRS:
            return "=" in word or not (self.values[flag] or "/" in word)
        if flag in CONFIG_FILES:
            return not word.startswith("results/") and (
                word.endswith((".yaml", ".yml", ".json")) or Path(word).exists()
            )
        if flag in QUIET:
            return word in ("all", "host", "none", "progress", "reason", "rules")
        return not (flag in LISTS and self.values[flag] and word.startswith("results/"))

    def of(self, names: Sequence[str]) -> list[str]:
        """The values of a flag by all its names."""
        return [value for name in names for value in self.values.get(name, [])]

    @property
    def config_files(self) -> list[Path]:
        """The configuration files, in their order."""
        return [Path(value) for value in self.of(CONFIG_FILES)]

    @property
    def settings(self) -> dict[str, Any]:
        """What ``--config`` sets; ``UserError`` for what is no KEY=VALUE."""
        content: dict[str, Any] = {}
        for word in self.of(CONFIG):
            key, equals, value = word.partition("=")
            if not (equals and KEY.fullmatch(key)):
                raise UserError(f"--config {word}: write KEY=VALUE, such as benchmark.seed=3")
            setting = parse_yaml(value, f"--config {key}")
            for part in reversed(key.split(".")):
                setting = {part: setting}
            _merge(content, setting)
        return content

    @property
    def arch(self) -> str:
        """The arch of the configuration: that of ``--config``, of the last file that has one, or the default."""
        files = [read_yaml(path) for path in (*reversed(self.config_files), CONFIG_FILE) if path.is_file()]
        archs = [each.get("arch") for each in (self.settings, *files) if isinstance(each, dict)]
        return str(next(filter(None, archs), Config().arch))

    @property
    def chooses_cores(self) -> bool:
        """Whether the words say how many jobs run side by side."""
        return any(name in self.values for name in OWN_CORES)

    def check(self) -> None:
        """``UserError`` for a fault that Snakemake would report in many lines, or not at all."""
        snakefile = Path(next(iter(self.of(SNAKEFILE)), "Snakefile"))
        if not snakefile.is_file():
            where = "in this folder" if snakefile == Path("Snakefile") else "of this name"
            raise UserError(f"{snakefile}: there is none {where}; go to the checkout, or use tileseer init FOLDER")
        for name in CONFIG_FILES:
            if name in self.values and not self.values[name]:
                raise UserError(f"{name}: a file has to follow, such as config/hip.yaml")
        for path in self.config_files:
            if not path.exists():
                near = get_close_matches(path.name, [each.name for each in path.parent.glob("*")], 1, 0.75)
                meant = f"; do you mean {path.parent / near[0]}?" if near else ""
                raise UserError(f"{CONFIG_FILES[0]}: {path}: there is no such file{meant}")
        for path in (CONFIG_FILE, *self.config_files):
            if path.exists():
                check_config_file(path)
        for name in self.values.keys() & PAIRS - {*CONFIG, "--default-resources", "--default-res"}:
            for value in self.values[name]:
                if "=" not in value:
                    raise UserError(f"{name} {value}: write NAME=VALUE")
        for value in self.of(CORES):
            if value not in ("all", "unlimited") and not re.fullmatch(r"[1-9]\d{0,5}", value):
                raise UserError(f"--cores: should be a whole number from 1, or all, but it is {shown(value)}")
        for profile in self.of(("--workflow-profile",)):
            if profile != "none" and not Path(profile).is_dir():
                raise UserError(f"--workflow-profile: {profile}: there is no such folder, such as profiles/slurm")
        self._check_flags()

    def _check_flags(self) -> None:
        """``UserError`` for a flag that Snakemake does not have: it would print all that it has."""
        strange = self.values.keys() - {*LISTS, *BARE, *OWN_CORES, *SNAKEFILE}
        if strange:
            text = subprocess.run([sys.executable, "-m", "snakemake", "--help"], capture_output=True, text=True).stdout
            flags = set(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", text))
            for name in sorted(strange - flags if flags else ()):
                near = get_close_matches(name, [*flags, "--arch", "--json"], 1)
                meant = f"; do you mean {near[0]}?" if near else "; see tileseer run --help"
                raise UserError(f"{name}: neither tileseer run nor snakemake has this flag{meant}")


def _merge(content: dict[str, Any], more: dict[str, Any]) -> None:
    for key, value in more.items():
        if isinstance(value, dict) and isinstance(content.get(key), dict):
            _merge(content[key], value)
        else:
            content[key] = value
