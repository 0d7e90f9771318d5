"""The tables of the documentation, each made from the committed evaluations or from the logs of measurements."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from tileseer.core import documents
from tileseer.core.documents import Document
from tileseer.facts.operations import VARIANTS
from tileseer.judge.evaluation import Evaluation
from tileseer.judge.figures import Harm, LibraryComparison
from tileseer.judge.verdict import verdict_of
from tileseer.serve.model_page import figures_of

ROOT = Path(__file__).parents[1]
EVALUATIONS = ROOT / "docs/generated/evaluations.json"
TIMED = ROOT / "benchmarks/gpu/logs/torch"
Published = dict[str, Evaluation]
"""Evaluations by arch and operation, ``gfx950/forward_bf16``."""
CANDIDATES = {
    "sm_90_cudnn": "H200: cuDNN's plans",
    "sm_90": "H200: CUTLASS kernels",
    "gfx950_mi355x": "MI355X: CK Tile kernels",
    "gfx942_miopen": "MI300X: MIOpen's solvers",
    "gfx90a_miopen": "MI210: MIOpen's solvers",
}
"""The rows of README.md: archs with times of a real GPU, and what is chosen from."""
STEADY_US = 20.0
"""From so long on two timings of one layer agree (``benchmarks/gpu/torch_layers.py``)."""
OTHERS = {"first": "cuDNN's first plan", "pytorch": "PyTorch's default", "benchmark": "its benchmark mode"}
"""What timed layers are compared with."""
NETWORKS = {
    "convnext_tiny": "ConvNeXt-T, batch 64",
    "densenet121": "DenseNet-121, batch 64",
    "efficientnet_v2_s": "EfficientNetV2-S, batch 64",
    "inception_v3": "Inception v3, batch 64",
    "layer_norm_batch_1": "ConvNeXt-T, batch 1",
    "mc3_18": "MC3-18, batch 16",
    "mobilenet_v3_large": "MobileNetV3-L, batch 128",
    "r2plus1d_18": "R(2+1)D-18, batch 8",
    "r3d_18": "R3D-18, batch 16",
    "regnet_y_3_2gf": "RegNetY-3.2GF, batch 64",
    "resnet50": "ResNet-50, batch 64",
    "resnext101_32x8d": "ResNeXt-101 32x8d, batch 32",
    "resnext50_32x4d": "ResNeXt-50 32x4d, batch 64",
    "shufflenet_v2_x1_0": "ShuffleNetV2 x1.0, batch 128",
    "unet_2d": "2D U-Net, batch 8",
    "unet_3d": "3D U-Net, batch 2",
    "diffusion_unet": "latent-diffusion U-Net, group norm, batch 8",
    "wide_resnet50_2": "Wide ResNet-50, batch 64",
    "vgg11": "VGG-11, batch 8",
    "instance_norm_unet_3d": "3D U-Net, instance norm, batch 2",
    "group_norm_resnet50": "ResNet-50, group norm, batch 8",
    "frozen_resnet50": "ResNet-50, half of it frozen, batch 8",
    "grey_unet_2d": "2D U-Net, grey, transposed, batch 16",
    "mobile_video": "X3D-like video network, depthwise 3x3x3, batch 8",
    "resnext50_batch_4": "ResNeXt-50 32x4d, batch 4",
    "s3d": "S3D, batch 8",
    "translator": "image translator, 4x4 transposed, batch 4",
}
"""What the networks of ``benchmarks/gpu/networks.py`` are called."""
SHIPPED_HEAD = """# How good the picks are that ship

Written by `make figures` from the evaluations of the models. Efficiency in percent: time of the fastest candidate over
time of the pick, on layers that no model was trained on. The interval is a 95 % bootstrap interval of the mean. "Best
of 2" and "best of 3" are of the recorded times, as if each pick were timed without error. The fixed choice is the best
without a model, such as a rule or a fixed order of solvers. "Possible" is the mean of a selector that knows [more than
a model can](../internals/learning.md#noise-floor). Layers without a candidate are in none of the other figures. With
cuDNN's plans they are the layers whose first plan was wrong; these stay with cuDNN. Simulated figures do not describe a
real GPU.

"""
LIBRARIES_HEAD = """
## Beside other libraries

Time of another library over that of the pick on the layers that have both (geometric mean; above 1 the pick is faster),
and the share of picks that take at least 2 % longer.

"""
HARM_HEAD = """
## Beside cuDNN's first plan

Share of layers with another pick than the first plan, of the room between the first plan and the fastest that these
picks gain, and of picks that take at least 2 % longer; time of the worst pick over that of the first plan. "Best of 2"
and "best of 3" are efficiencies, as above.

"""

TIMES_HEAD = """
## Time

Times over that of the fastest candidates of all layers together, each as often as networks use it: of the picks, of a
selector that knows more than a model can, and of what runs without a model (the library's own choice, or the first of a
fixed order). The longest layers are the ten that take most time with their picks: their share of the time that is lost,
and the worst of them. Harmed are picks that take at least 2 % longer than what runs without the model; beside their
share, their time over that of the latter.

"""


class PublishedEvaluations(Document):
    """Evaluations of the models that ship, without single layers."""

    evaluations: dict[str, Evaluation]


def committed() -> Published:
    """Return the evaluations that the documentation is made from."""
    return documents.read_document(EVALUATIONS, PublishedEvaluations).evaluations


def without_parts(evaluation: Evaluation) -> Evaluation:
    """Return an evaluation without its parts by layer, network and kind, except for the worst and for all together."""
    return evaluation.model_copy(update={"by_kind": {}, "by_evidence": {}, "networks": evaluation.networks[:1]})


def table(rows: Iterable[Mapping[str, object]]) -> str:
    """Return a table of Markdown from its rows, each with its cells by their headings."""
    every = list(rows)
    lines = [" | ".join(map(str, cells)) for cells in (every[0], *(row.values() for row in every))]
    return "".join([f"| {lines[0]} |\n", "|---" * len(every[0]), "|\n", *(f"| {line} |\n" for line in lines[1:])])


def shipped_page(found: Published) -> str:
    """Return docs/generated/shipped.md."""
    every = list(found.values())
    return (
        SHIPPED_HEAD
        + table(map(_shipped_cells, every))
        + TIMES_HEAD
        + table(map(_times_cells, every))
        + LIBRARIES_HEAD
        + table(_library_cells(one, other) for one in every for other in one.libraries)
        + HARM_HEAD
        + table(_harm_cells(one, one.harm) for one in every if one.harm)
    )


def _shipped_cells(one: Evaluation) -> dict[str, str]:
    shown, (low, high) = figures_of(one), one.interval
    return {
        "arch": one.arch,
        "operation": one.operation,
        "times": one.device_kind,
        "layers": f"{one.layers:,}",
        "mean": shown["mean"],
        "interval": f"{low:.1f} to {high:.1f}",
        "P10": shown["P10"],
        "best of 2": shown["best of 2"],
        "best of 3": shown["best of 3"],
        "fixed choice": f"{one.best_baseline.efficiency.mean:.1f}",
        "possible": f"{one.possible.mean:.1f}" if one.possible else "not known",
        "worst network": shown["worst network"],
        "worst layer": shown["worst layer"],
        "without a candidate": shown["without a candidate"],
        "verdict": verdict_of(one).word,
    }


def _times_cells(one: Evaluation) -> dict[str, str]:
    return {
        "arch": one.arch,
        "operation": one.operation,
        "picks": f"{one.sum_over_best:.3f}",
        "possible": "not known" if one.sum_possible is None else f"{one.sum_possible:.3f}",
        "without a model": f"{one.sum_without_model:.3f}",
        "lost in the longest": f"{one.lost_in_longest:.0f} %",
        "worst of the longest": f"{one.worst_of_longest:.2f}",
        "harmed": f"{one.harmed:.1f} %",
        "harm": f"{one.harm_factor:.2f}",
    }


def _library_cells(one: Evaluation, other: LibraryComparison) -> dict[str, object]:
    return {
        "arch": one.arch,
        "operation": one.operation,
        "library": other.library,
        "layers": other.layers,
        "speed": f"{other.speed:.3f}",
        "slower by 2 %": f"{other.slower:.1f} %",
    }


def _harm_cells(one: Evaluation, harm: Harm) -> dict[str, object]:
    return {
        "operation": one.operation,
        "layers": harm.layers,
        "another pick": f"{harm.replaced:.1f} %",
        "room gained": f"{harm.gained or 0:.0f} %",
        "slower by 2 %": f"{harm.slower:.1f} %",
        "worst": f"{harm.slowest:.2f}",
        "best of 2": f"{one.best_of_2.mean:.1f}",
        "best of 3": f"{one.best_of_3.mean:.1f}",
    }


def picks(found: Published) -> str:
    """Return README's table: of each GPU the figures of its lowest and its highest operation, and its verdicts."""

    def cells(arch: str, words: str) -> dict[str, str]:
        own = [one for one in found.values() if one.arch == arch]
        verdicts = Counter(verdict_of(one).word for one in own)
        return {
            "GPU and candidates": words,
            "layers": f"{sum(one.layers for one in own):,}",
            "mean": _range([one.efficiency.mean for one in own], ".1f"),
            "P10": _range([one.efficiency.p10 for one in own], ".1f"),
            "best of 2": _range([one.best_of_2.mean for one in own], ".1f"),
            "time over the fastest": _range([one.sum_over_best for one in own], ".2f"),
            "worst of the 10 longest": _range([one.worst_of_longest for one in own], ".2f"),
            "slower than without a model": _range([one.harmed for one in own], ".1f") + " %",
            "time without a candidate": f"{max(100 - one.covered_time for one in own):.0f} %",
            "verdicts": "; ".join(f"{count} {word}" for word, count in sorted(verdicts.items())),
        }

    return table(cells(arch, words) for arch, words in CANDIDATES.items())


def _range(values: list[float], form: str) -> str:
    low, high = f"{min(values):{form}}", f"{max(values):{form}}"
    return low if low == high else f"{low}–{high}"


def timed_layers(found: Published) -> str:
    """Return the table of the picks that a GPU timed in turns with cuDNN's and PyTorch's own choices."""
    rows: list[dict[str, Any]] = json.loads((TIMED / "layers.json").read_text())["layers"]
    lines = []
    for variant in VARIANTS:
        times = [row["us"] for row in rows if row["variant"] == variant and "us" in row]
        for way, words in (("blind", "model alone"), ("verified", "timed once")):
            line = {"picks": f"{variant}, {words}", "layers": str(len(times))}
            for other, name in OTHERS.items():
                mean = geometric_mean(us[other] / us[way] for us in times)
                sums = sum(us[other] for us in times) / sum(us[way] for us in times)
                line[name] = f"{mean:.3f}, {sums:.3f}"
            steady = [us for us in times if us[way] >= STEADY_US]
            slower = sum(us[way] >= 1.02 * us["pytorch"] for us in steady) / len(steady)
            worst = max(us[way] / us["pytorch"] for us in steady)
            line["2 % slower than the default"] = f"{100 * slower:.1f} %, worst {worst:.2f}"
            line["verdict on the model that ships"] = verdict_of(found[f"sm_90_cudnn/{variant}_bf16"]).word
            lines.append(line)
    return table(lines)


def _timed_steps() -> dict[str, dict[str, float]]:
    """Return ratios of time and of memory of each network's training step, the largest gain in a CUDA graph first."""
    rows = {
        NETWORKS[name]: {
            "default, graph": row["graph_ratios"]["default"],
            "benchmark, graph": row["graph_ratios"]["benchmark"],
            "memory": row["peak_mib"]["verified"] / row["peak_mib"]["default"],
            "default, eager": row["eager_ratios"]["default"],
            "benchmark, eager": row["eager_ratios"]["benchmark"],
        }
        for name, row in json.loads((TIMED / "steps.json").read_text()).items()
    }
    return dict(sorted(rows.items(), key=lambda item: -item[1]["default, graph"]))


def training_steps(found: Published) -> str:
    """Return the table of whole training steps."""
    return table(
        {"network": network, **{what: f"{ratio:.3f}" for what, ratio in row.items()}}
        for network, row in _timed_steps().items()
    )


def training_gains(found: Published) -> str:
    """Return what the training steps gain in CUDA graphs, in the mean and at the ends."""
    steps, lines = _timed_steps(), []
    columns = {"PyTorch's default": "default, graph", "its benchmark mode": "benchmark, graph", "memory": "memory"}
    for what, column in columns.items():
        values = {name: row[column] for name, row in steps.items()}
        low, high = min(values, key=values.__getitem__), max(values, key=values.__getitem__)
        lines.append(
            {
                "beside": what,
                "geometric mean": f"{geometric_mean(values.values()):.3f}",
                "lowest": f"{values[low]:.3f} ({low})",
                "highest": f"{values[high]:.3f} ({high})",
            }
        )
    return table(lines)


BLOCKS: dict[str, Callable[[Published], str]] = {
    "picks that ship": picks,
    "timed layers": timed_layers,
    "training steps": training_steps,
    "training gains": training_gains,
}
"""The blocks by the names in their marks."""
