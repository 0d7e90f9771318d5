"""Values that a file of a user may hold instead of the right ones."""

import copy

from hypothesis import strategies as st

VALUES = [
    None, True, -1, 0, 2**70, 1e308, float("nan"), float("inf"), "", " ", "x" * 5000, "a\nb", "a\0b", "é\u202e☃",
    "\ud800", "$(touch pwned)", "`touch pwned`", "; touch pwned", "'\"", "../../../etc/passwd", "/etc/passwd",
    "{{ 7 * 7 }}", "{wildcards.arch}", "__import__('os').system('touch pwned')",
    "!!python/object/apply:os.system ['touch pwned']",
    [], {}, [[]], {"": {}}, {"a": {"b": [1, None]}}, [1] * 100,
]  # fmt: skip
HOSTILE = st.sampled_from(VALUES)


def places(content, path=()):
    """Yield the path of every value inside a table."""
    yield path
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in items:
        yield from places(value, (*path, key))


def changed(content, path, value, rename):
    """Return a table with one value, or one name, replaced."""
    if not path:
        return value
    content = copy.deepcopy(content)
    inner = content
    for key in path[:-1]:
        inner = inner[key]
    if rename and isinstance(inner, dict):
        inner[str(value)] = inner.pop(path[-1])
    else:
        inner[path[-1]] = value
    return content
