"""C++ as a compiler sees it: code, strings and comments."""

import re

TOKEN = re.compile(r'"(?:\\.|[^"\\\n])*"|//(?:\\\n|[^\n])*|/\*.*?\*/', re.DOTALL)


def code_of(text: str) -> tuple[str, list[str]]:
    """Return a C++ text without its strings and comments, and its strings."""
    strings = [match[0] for match in TOKEN.finditer(text) if match[0].startswith('"')]
    return TOKEN.sub(lambda match: '""' if match[0].startswith('"') else "", text), strings
