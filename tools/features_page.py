"""The page docs/generated/features.md: the tables of the feature sets."""

from pathlib import Path

from tileseer.learn.features import feature_sets

PAGE = Path(__file__).parents[1] / "docs/generated/features.md"
HEAD = """# Features

Written by `make schema`. [Learning](../internals/learning.md#what-a-model-learns) says when each set is used. A feature
is in the table of the first set that has it. The 97 features of `reference` are those of Composable Kernel's predictor:
`src/tileseer/libraries/reference_features.py`.
"""


def page() -> str:
    """The page as it is committed."""
    text, known, sets = HEAD, dict[str, str](), dict[str, set[str]]()
    for name, chosen in feature_sets().items():
        if name == "reference":
            continue
        new = [feature for feature in chosen.every if known.get(feature.name) != feature.meaning]
        shared = [f"`{feature.name}`" for feature in chosen.every if feature not in new]
        known |= {feature.name: feature.meaning for feature in new}
        rows = "".join(f"| `{feature.name}` | {feature.meaning} | {feature.unit} |\n" for feature in new)
        text += f"\n## {name}\n\n"
        whole = next((f"all of `{other}`" for other, names in sets.items() if names <= set(shared)), "")
        rest = [word for word in shared if not whole or word not in sets[whole.split("`")[1]]]
        sets[name] = {f"`{feature.name}`" for feature in chosen.every}
        text += f"Also in a set above: {', '.join([*filter(None, [whole]), *rest])}.\n\n" if shared else ""
        text += f"| feature | formula | unit |\n|---|---|---|\n{rows}" if new else ""
    return text
