"""AMD's rules for gfx942 by hand, from the C++ file that a person has fetched (``AMD_RULES``; see the page).

Where the solver that they name does not run, TunaNet answers, as in MIOpen; the same in 3D.
"""

import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
import tunanet

GETTERS = {"GroupCount": "G", "WeightsHeight": "Y", "WeightsWidth": "X", "KernelStrideH": "stride_h", "PadH": "pad_h",
           "KernelStrideW": "stride_w", "DilationH": "dilation_h", "DilationW": "dilation_w", "InChannels": "C",
           "OutChannels": "K", "PadW": "pad_w", "InHeight": "Hi", "InWidth": "Wi", "BatchSize": "N",
           "InLayout": "layout", "OutLayout": "layout"}  # fmt: skip
FUNCTIONS = {"bwd_weight": "WrW", "bwd_data": "BwdData", "bf16": "FwdBfp16", "fp16": "FwdFp16", "fp32": "FwdFp32"}
WORDS = {r"//[^\n]*": "", r"&&": " and ", r"\|\|": " or ", "static_cast<int>": "", "const auto ": "", " / ": " // ",
         r"solver::Id (\w+)\([^)]*\)\n\{": r"def \1(p):", r"\)\n(\s+)(?=\{|return)": r"):\n\1",
         r"\belse\b": "else:", r"(?m)^\s*[{}]$": "", ";": ""}  # fmt: skip


def rules(text):
    """Return the functions of the rules by name: conditions and returns, which are Python but for a few words."""
    solvers = dict(re.findall(r'(\w+)\("(\w+)"\)', text))
    text = "".join(re.findall(r"(?ms)^solver::Id Pick(?!Solver).*?^\}\n", text))
    text = re.sub(r"Ids\(\)\.(\w+)", lambda found: repr(solvers[found[1]]), text)
    for pattern, words in WORDS.items():
        text = re.sub(pattern, words, text)
    found = {}
    exec(text, found)
    return {key: found[f"Pick{name}"] for key, name in FUNCTIONS.items()}


def pick(problems, candidates):
    """Return TunaNet's scores, and the highest of all for the solver of the rules."""
    functions, named = rules(Path(os.environ["AMD_RULES"]).read_text("utf-8")), {}
    for row in problems[problems["ndim"] == 2].drop_duplicates(["operation", "problem_key"]).to_dict("records"):
        said = {f"Get{name}": row[field] for name, field in GETTERS.items()}
        said |= {f"Is{name}": row["dtype"] == name.lower().replace("bfp", "bf") for name in ("Bfp16", "Fp16", "Fp32")}
        asked = SimpleNamespace(**{name: lambda value=value: value for name, value in said.items()})
        rule = functions.get(row["variant"]) or functions[row["dtype"]]
        named[row["operation"], row["problem_key"]] = f"d_{rule(asked)}"
    names = [named.get(key, "no") for key in zip(problems["operation"], problems["problem_key"], strict=True)]
    is_named = [kernel.endswith(name) for kernel, name in zip(candidates["kernel"], names, strict=True)]
    return np.where(is_named, np.inf, tunanet.pick(problems, candidates))
