"""One LightGBM lambdarank for all operations of a track: the form in which AMD describes its next picker.

Grades are 30 times the efficiency; 600 trees of 63 leaves, rate 0.05. The features are the 19 dimensions, the matrix
product, what divides channels, and the candidate by its name.
"""

import lightgbm
import numpy as np
import pandas as pd

from tileseer.problems.problem import DIMS

WORDS = ["variant", "dtype", "layout", "name"]
MODEL = {}


def features(problems, candidates):
    """Return the features of each row."""
    p = {name: problems[name].to_numpy(float) for name in DIMS}
    out = [(p[i] + 2 * p[f"pad_{a}"] - p[f"dilation_{a}"] * (p[f] - 1) - 1) // p[f"stride_{a}"] + 1
           for i, f, a in (("Di", "Z", "d"), ("Hi", "Y", "h"), ("Wi", "X", "w"))]  # fmt: skip
    pixels, window, c, k = out[0] * out[1] * out[2], p["Z"] * p["Y"] * p["X"], p["C"] / p["G"], p["K"] / p["G"]
    sizes = {"m": p["N"] * pixels, "n": k, "k": c * window, "work": p["N"] * pixels * p["K"] * c * window}
    made = p | {name: np.log1p(value) for name, value in sizes.items()}
    made |= {"aspect": sizes["m"] / k, "depth": sizes["m"] / sizes["k"], "out_h": out[1], "out_w": out[2]}
    for size in (8, 32, 64):
        made |= {f"c{size}": p["C"] % size, f"k{size}": p["K"] % size}
    # The operation and the dimensionality are in the name of a kernel of ours: MIOpen's has neither.
    name = candidates["kernel"].str.replace(r"^miopen_conv_(fwd|bwd_data|bwd_weight)_[a-z0-9]+_[23]d_", "", regex=True)
    return pd.DataFrame(made).assign(**problems[WORDS[:3]].reset_index(drop=True), name=name.to_numpy())


def learn(problems, candidates, milliseconds):
    """Train the ranker."""
    table = features(problems, candidates).assign(key=problems["operation"] + problems["problem_key"], ms=milliseconds)
    table = table.sort_values("key", kind="stable")
    grade = np.floor(30 * table.groupby("key")["ms"].transform("min") / table["ms"]).astype(int)
    MODEL["words"] = {word: pd.CategoricalDtype(sorted(table[word].unique())) for word in WORDS}
    rows = table.drop(columns=["key", "ms"]).astype(MODEL["words"])
    data = lightgbm.Dataset(rows, grade, group=table.groupby("key").size())
    settings = {"objective": "lambdarank", "label_gain": list(range(31)), "lambdarank_truncation_level": 10,
                "num_leaves": 63, "learning_rate": 0.05, "verbosity": -1, "num_threads": 1, "seed": 1}  # fmt: skip
    MODEL["trees"] = lightgbm.train(settings, data, 600)


def pick(problems, candidates):
    """Return the scores."""
    return MODEL["trees"].predict(features(problems, candidates).astype(MODEL["words"]), num_threads=1)
