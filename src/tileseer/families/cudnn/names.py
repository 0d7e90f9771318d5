"""Names of plans: cuDNN's own, behind the direction, the data type and the dimensionality."""

from tileseer.families.cudnn.kernel import Plan, parse


def completed(name: str, arch: str) -> tuple[Plan, str]:
    """Plan of a name; nothing is assumed."""
    return parse(name), ""
