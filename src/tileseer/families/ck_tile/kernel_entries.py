"""Kernels as a dispatcher finds them: name, header, wrapper and the fields of the registry's key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tileseer import families
from tileseer.families.ck_tile import kernel, registry_key
from tileseer.families.ck_tile.ck_api import CkApi
from tileseer.families.ck_tile.emit import WRAPPERS
from tileseer.families.ck_tile.registry_key import ARCH_ARGUMENT


def entries(names: Sequence[str], api: CkApi, arch: str) -> list[dict[str, Any]]:
    """Return one entry a kernel, in the given order; values of the key are those that registration fills in.

    A library of CUTLASS kernels lists them by name, which is the key.
    """
    family = families.of_arch(arch)
    if family is families.CUTLASS:
        return [
            {
                "kernel": name,
                "header": name + family.header_suffix,
                "unit": f"{name}.cu",
                "registry_key": {"name": name},
            }
            for name in names
        ]
    found = []
    for name in names:
        key = registry_key.of_gemm(kernel.parse(name), api)
        found.append(
            {
                "kernel": name,
                "header": name + family.header_suffix,
                "wrapper": f"{WRAPPERS}/dispatcher_wrapper_{name}.hpp",
                "registry_key": {field: arch if text == ARCH_ARGUMENT else _value(text) for field, text in key.items()},
            }
        )
    return found


def _value(text: str) -> str | int | bool:
    """Return what a C++ literal of the key says: a number, a flag, a text or an enumerator's name."""
    if text in ("true", "false"):
        return text == "true"
    return int(text) if text.isdigit() else text.strip('"')
