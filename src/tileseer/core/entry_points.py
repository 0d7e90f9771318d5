"""What packages add to this one: objects that their entry points name, ours among them."""

from importlib import metadata
from importlib.metadata import EntryPoint
from typing import Any

from tileseer.core.errors import UserError
from tileseer.core.places import project_of_checkout


def load_entry_points(group: str) -> dict[str, Any]:
    """Return the objects of a group by name, sorted by it; ``UserError`` for one that cannot be imported."""
    points = {point.name: point for point in metadata.entry_points(group=group)}
    # A checkout need not be installed: what its metadata would say, its own file says.
    own = (project_of_checkout() or {}).get("entry-points", {}).get(group, {})
    points |= {name: EntryPoint(name, value, group) for name, value in own.items()}
    return {name: _load(points[name]) for name in sorted(points)}


def _load(point: EntryPoint) -> Any:
    try:
        return point.load()
    except (ImportError, AttributeError) as error:
        package = f" of {point.dist.name}" if point.dist else ""
        raise UserError(
            f"entry point {point.name} ({point.value}){package}: {error}; install that package again, or remove it"
        ) from error
