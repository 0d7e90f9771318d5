"""TunaNet as MIOpen ships it, from the files that a person has fetched (``TUNANET``: their folder; see the page)."""

import base64
import json
import os
from pathlib import Path

import numpy as np

FOLDER = Path(os.environ.get("TUNANET", "tunanet"))


def _floats(texts):
    return np.frombuffer(b"".join(map(base64.b64decode, texts if isinstance(texts, list) else [texts])), "<f4")


def network(model, values):
    """Return the last layer of an fdeep network for rows of inputs, float32 [n, outputs]."""
    made, weights = {}, model["trainable_params"]
    for layer in model["architecture"]["config"]["layers"]:
        name, kind, config = layer["name"], layer["class_name"], layer["config"]
        inputs = [made[one[0]] for one in layer["inbound_nodes"][0]] if layer["inbound_nodes"] else [values]
        if kind == "Dense":
            matrix = _floats(weights[name]["weights"]).reshape(-1, config["units"])
            result = inputs[0] @ matrix + (_floats(weights[name]["bias"]) if config["use_bias"] else 0)
            result = np.maximum(result, 0) if config["activation"] == "relu" else result
        elif kind == "LayerNormalization":
            centred = inputs[0] - inputs[0].mean(1, keepdims=True)
            spread = np.sqrt((centred**2).mean(1, keepdims=True) + config["epsilon"])
            result = centred / spread * _floats(weights[name]["gamma"]) + _floats(weights[name]["beta"])
        else:
            result = {"InputLayer": lambda x: x, "ReLU": lambda x: np.maximum(x, 0)}.get(kind, sum)(
                inputs if kind == "Add" else inputs[0]
            )
        made[name] = result
    return made[name]


def pick(problems, candidates):
    """Return the network's scores of the solvers that it knows, on 2D problems in NCHW of equal strides."""
    gfx = problems["arch"].iloc[0].partition("_")[0]
    meta, model = (json.loads((FOLDER / f"{gfx}{end}.tn.model").read_text()) for end in ("_metadata", ""))
    codes, p = meta["encodings"], problems
    out = [(p[i] + 2 * p[f"pad_{a}"] - p[f"dilation_{a}"] * (p[f] - 1) - 1) // p[f"stride_{a}"] + 1
           for i, f, a in (("Hi", "Y", "h"), ("Wi", "X", "w"))]  # fmt: skip
    direction = p["variant"].map({"forward": "F", "bwd_data": "B", "bwd_weight": "W"}).map(codes["Direction"])
    columns = [p.C, p.Hi, p.Wi, p.K, *out, p.Y, p.X, p.pad_h, p.pad_w, p.stride_h, p.stride_w, p.dilation_h,
               p.dilation_w, p.N, p.dtype.str.upper().map(codes["Precision"]), direction, p.G]  # fmt: skip
    stats = meta["stats"]["test" if gfx == "gfx942" else "overall"]["features"]
    mean, std = (np.array([stats[s][f] for f in meta["conv_params_used_as_features"]], "f4") for s in ("mean", "std"))
    outputs = network(model, (np.stack([np.asarray(c, "f4") for c in columns], 1) - mean) / std)
    scores = outputs[:, meta["num_outputs"] - meta["num_solvers"] :]
    name = candidates["kernel"].str.replace(r"^miopen_conv_(fwd|bwd_data|bwd_weight)_[a-z0-9]+_[23]d_", "", regex=True)
    known = (p.layout.isin(["", "NCHW"]) & (p.ndim == 2) & (p.stride_h == p.stride_w)).to_numpy()
    column = name.map(codes["solver"]).to_numpy(float)
    found = np.full(len(p), np.nan)
    rows = np.flatnonzero(known & ~np.isnan(column))
    found[rows] = scores[rows, column[rows].astype(int)]
    return found
