"""TunaNet as MIOpen ships it, from the files that a person has fetched (``TUNANET``: their folder; see the page)."""

import base64
import json
import os
from pathlib import Path

import numpy as np


def _floats(texts):
    return np.frombuffer(b"".join(map(base64.b64decode, np.atleast_1d(texts))), "<f4")


def network(model, values):
    """Return the last layer of an fdeep network for rows of inputs, float32 [n, outputs]."""
    made = {}
    for layer in model["architecture"]["config"]["layers"]:
        name, kind, config = layer["name"], layer["class_name"], layer["config"]
        inputs = [made[one[0]] for one in layer["inbound_nodes"][0]] if layer["inbound_nodes"] else [values]
        learnt = {key: _floats(texts) for key, texts in model["trainable_params"].get(name, {}).items()}
        result = sum(inputs)
        if kind == "Dense":
            result = result @ learnt["weights"].reshape(-1, config["units"]) + learnt.get("bias", 0)
        elif kind == "LayerNormalization":
            centred = result - result.mean(1, keepdims=True)
            spread = np.sqrt((centred**2).mean(1, keepdims=True) + config["epsilon"])
            result = centred / spread * learnt["gamma"] + learnt["beta"]
        made[name] = np.maximum(result, 0) if "relu" in (kind.lower(), config.get("activation")) else result
    return made[name]


def pick(problems, candidates):
    """Return the network's scores of the solvers that it knows, on 2D problems in NCHW of equal strides."""
    gfx = problems["arch"].iloc[0].partition("_")[0]
    names = (Path(os.environ["TUNANET"], f"{gfx}{end}.tn.model") for end in ("_metadata", ""))
    meta, model = (json.loads(name.read_text("utf-8")) for name in names)
    codes, p = meta["encodings"], problems
    out = [(p[i] + 2 * p[f"pad_{a}"] - p[f"dilation_{a}"] * (p[f] - 1) - 1) // p[f"stride_{a}"] + 1
           for i, f, a in (("Hi", "Y", "h"), ("Wi", "X", "w"))]  # fmt: skip
    direction = p["variant"].map({"forward": "F", "bwd_data": "B", "bwd_weight": "W"}).map(codes["Direction"])
    columns = [p.C, p.Hi, p.Wi, p.K, *out, p.Y, p.X, p.pad_h, p.pad_w, p.stride_h, p.stride_w, p.dilation_h,
               p.dilation_w, p.N, p.dtype.str.upper().map(codes["Precision"]), direction, p.G]  # fmt: skip
    stats = meta["stats"]["test" if gfx == "gfx942" else "overall"]["features"]
    mean, std = (np.array([stats[s][f] for f in meta["conv_params_used_as_features"]], "f4") for s in ("mean", "std"))
    scores = network(model, (np.stack(columns, 1).astype("f4") - mean) / std)[:, -meta["num_solvers"] :]
    name = candidates["kernel"].str.replace(r"^miopen_conv_(fwd|bwd_data|bwd_weight)_[a-z0-9]+_[23]d_", "", regex=True)
    known = p.layout.isin(["", "NCHW"]) & (p.ndim == 2) & (p.stride_h == p.stride_w) & name.isin(codes["solver"])
    column = name.map(codes["solver"]).fillna(0).to_numpy(int)
    return np.where(known, scores[np.arange(len(p)), column], np.nan)
