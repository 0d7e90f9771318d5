"""The repository under test: its folders, and the tables of ``config/``."""

from pathlib import Path

import yaml

from tileseer.facts.arch import ArchSpecs
from tileseer.facts.hardware import read_products
from tileseer.libraries.costs.coefficients import load_coefficients

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "config"
SPECS = ArchSpecs.load(CONFIG / "arch_specs.json")
GPUS = read_products(CONFIG / "hardware.yaml")
MI355X, H200 = GPUS["gfx950_mi355x"], GPUS["sm_90_h200"]
COEFFICIENTS = load_coefficients(CONFIG / "simulated_device.yaml")


def edited(source, target, edit):
    """Write a table as YAML after a function has changed it; return the path of the new file."""
    content = yaml.safe_load(source.read_text())
    edit(content)
    target.write_text(yaml.safe_dump(content))
    return target
