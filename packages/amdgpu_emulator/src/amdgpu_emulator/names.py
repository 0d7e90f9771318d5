"""Names of kernels as their authors wrote them: of a mangled name the function with its namespaces, without types."""

import re

_SOURCE_NAME = re.compile(r"L?(\d+)")
_QUALIFIERS = re.compile(r"[rVKRO]*")


def qualified_name(mangled: str) -> str:
    """Return ``space::function`` of a name that the C++ ABI of Itanium has mangled; other names stay as they are.

    Arguments of templates and of functions are left out. A kernel is no member of a class, so that templates come last.
    """
    if not mangled.startswith("_Z"):
        return mangled
    at, is_nested = 2, mangled[2:3] == "N"
    if is_nested:
        qualifiers = _QUALIFIERS.match(mangled, 3)
        at = qualifiers.end() if qualifiers else 3
    parts: list[str] = []
    while match := _SOURCE_NAME.match(mangled, at):
        at = match.end() + int(match[1])
        part = mangled[match.end() : at]
        parts.append("(anonymous namespace)" if part.startswith("_GLOBAL__N") else part)
        if not is_nested:
            break
    return "::".join(parts) or mangled


def base_name(mangled: str) -> str:
    """Return the function alone."""
    return qualified_name(mangled).rpartition("::")[2]
