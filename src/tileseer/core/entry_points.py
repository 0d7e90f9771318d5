"""What packages add to this one: objects that their entry points name, ours among them."""

from importlib import import_module, metadata
from importlib.metadata import EntryPoint
from typing import Any

from tileseer.core.errors import OF_FOREIGN_CODE, UserError, is_it, mistakes_of
from tileseer.core.places import project_of_checkout


def entry_points(group: str) -> dict[str, list[EntryPoint]]:
    """Return the entry points of a group by their names, sorted by them; several of one name are a mistake."""
    project = project_of_checkout() or {}
    points = [*metadata.entry_points(group=group)]
    # A checkout need not be installed: what its metadata would say, its own file says.
    if own := project.get("entry-points", {}).get(group, {}):
        points = [point for point in points if not point.dist or point.dist.name != project["name"]]
        points += [EntryPoint(name, value, group) for name, value in own.items()]
    found: dict[str, list[EntryPoint]] = {}
    for point in points:
        found.setdefault(point.name, []).append(point)
    return dict(sorted(found.items()))


def load_entry_points(group: str) -> dict[str, Any]:
    """Return the objects of a group by name, sorted by it; ``UserError`` for one that cannot be imported."""
    return {name: load_entry_point(points) for name, points in entry_points(group).items()}


def load_entry_point(points: list[EntryPoint]) -> Any:
    """Return the object of the entry points with one name; ``UserError`` if it cannot be imported, or there are two."""
    point, *_ = points
    if len({each.value for each in points}) > 1:
        raise UserError(f"{' and '.join(sorted(map(_where, points)))} have the same name; give one another name")
    try:
        return point.load()
    except AttributeError as error:
        near = is_it(point.attr, dir(import_module(point.module)))
        raise UserError(f"{_where(point)}: {error}{near}; correct it and install that package again") from error
    except ImportError as error:
        raise UserError(f"{_where(point)}: {error}; install that package again, or remove it") from error
    except OF_FOREIGN_CODE:
        with mistakes_of(f"{_where(point)} cannot be imported; correct it, or remove that package"):
            raise


def _where(point: EntryPoint) -> str:
    package = f" of {point.dist.name}" if point.dist else ""
    return f"entry point {point.name} ({point.value}){package}"
