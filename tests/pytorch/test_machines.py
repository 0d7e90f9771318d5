"""Whatever a machine has, the program goes on: one sentence and PyTorch's own choice where nothing can be enabled."""

import os
import re
import shutil
import subprocess
import sys
import threading
import types
import warnings
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import torch_on_cpu  # noqa: E402
from torch_on_cpu import PLANS, CpuChooser  # noqa: E402

from tileseer.core.errors import UserError  # noqa: E402
from tileseer.libraries.cudnn import versions  # noqa: E402
from tileseer.torch import extension, model_packages, switch  # noqa: E402

A100, L40S, H100, B200 = (8, 0), (8, 9), (9, 0), (10, 0)
NINE_19, NINE_24 = (9, 19, 0), (9, 24, 0)


@pytest.fixture
def machine(monkeypatch, compiled, model, offer, tmp_path):
    """Make the CPU a machine with GPUs, the package of models for an H100, and a PyTorch with cuDNN.

    Returned are the calls that would compile or start CUDA.
    """

    def make(gpus=(H100,), seen=None, package=True, cuda="13.0", built=NINE_19, found=NINE_19, load=None):
        calls = []
        monkeypatch.setattr(torch.version, "cuda", cuda)
        monkeypatch.setattr(torch.backends.cudnn, "is_available", lambda: cuda is not None)
        names = {"getCompileVersion": built, "getRuntimeVersion": found, "getVersionInt": 91900}
        versions = types.SimpleNamespace(**{name: lambda value=value: value for name, value in names.items()})
        monkeypatch.setattr(torch._C, "_cudnn", versions, raising=False)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: len(gpus))
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: calls.append("capability") or gpus[0])
        for name in ("is_available", "init", "_lazy_init", "get_device_properties"):
            monkeypatch.setattr(torch.cuda, name, lambda *_: pytest.fail("CUDA is started"))
        monkeypatch.setattr(model_packages, "visible_gpus", lambda: list(gpus if seen is None else seen))
        monkeypatch.setattr(extension, "load", load or (lambda: calls.append("compiled") or compiled))
        monkeypatch.setattr(switch.Program, "kind", CpuChooser)
        monkeypatch.setattr(switch, "_prepared", None)
        if package:
            name, site = "tileseer_models_sm90_cudnn", tmp_path / "site"
            shutil.copytree(model, site / name / "model")
            (site / name / "__init__.py").touch()
            information = site / f"{name}-1.dist-info"
            information.mkdir()
            (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
            (information / "entry_points.txt").write_text(f"[tileseer.models]\nsm_90_cudnn = {name}\n")
            monkeypatch.syspath_prepend(site)
        return calls

    yield make
    switch.disable()


@pytest.fixture
def convolve(layer, image):
    module, x = layer("Conv2d", 8, 8, 3), image(1, 8, 9, 9)
    with torch.no_grad():
        expected = module(x)

    def run(times=4):
        with torch.no_grad():
            for _ in range(times):
                assert (module(x) - expected).abs().double().norm() <= 0.02 * expected.double().norm()

    return run


def sentences(enable, run):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        enable()
        run()
    return [str(one.message) for one in caught if "tileseer" in str(one.message)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gpus": ()}, "PyTorch sees no NVIDIA GPU"),
        ({"cuda": None}, "built without CUDA and cuDNN; install one"),
        ({"gpus": (A100,)}, r"no models for the GPU \(sm_80_cudnn\): there are models of sm_90_cudnn alone; install"),
        ({"gpus": (L40S,)}, r"\(sm_89_cudnn\)"),
        ({"gpus": (B200, A100)}, r"\(sm_100_cudnn, sm_80_cudnn\)"),
        ({"package": False}, r"\(sm_90_cudnn\): no package of models is installed; install .*make wheels"),
        ({"package": False, "seen": ()}, r"\(this GPU\): no package of models"),
        (
            {"built": NINE_24},
            r"built with cuDNN 9\.24\.0, and refuses the older 9\.19\.0 .*: install nvidia-cudnn-cu13==",
        ),
        ({"built": (10, 0, 0)}, r"refuses the older 9\.19\.0"),
    ],
    ids=["no GPU", "no CUDA", "A100", "L40S", "two GPUs", "no package", "nothing known", "older cuDNN", "cuDNN 9"],
)
def test_what_a_machine_lacks_is_said_before_anything_is_compiled(machine, convolve, monkeypatch, options, message):
    required = ["filelock", 'nvidia-cudnn-cu13==9.24.0.43; platform_system == "Linux"']
    monkeypatch.setattr(extension.metadata, "requires", lambda package: required)
    calls = machine(**options)
    (sentence,) = sentences(switch.enable, convolve)
    assert sentence.endswith("PyTorch's own choice runs instead") and len(sentence.splitlines()) == 1
    assert switch._active is None and not calls
    with pytest.warns(UserWarning, match="nothing to enable here"):
        assert not len(switch.gains()) and switch.save()
    with pytest.warns(UserWarning, match=message), switch.enabled():
        convolve()


def test_what_is_meant_for_pytorch_itself_or_needs_it_says_so():
    with pytest.raises(AttributeError, match="'randn'; PyTorch is imported by: import torch"):
        _ = sys.modules["tileseer.torch"].randn
    program = "import sys; sys.modules['torch'] = None; import tileseer.torch"
    ended = subprocess.run([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True, check=False)
    assert ended.stderr.endswith("tileseer.torch needs PyTorch: pip install torch\n")


def test_a_newer_cudnn_is_no_obstacle(machine, convolve, compiled):
    machine(built=NINE_19, found=NINE_24)
    assert not sentences(lambda: switch.enable(verify=0), convolve) and compiled.counts() == (1, 1)


def test_a_given_model_of_another_gpu(machine, model, convolve):
    calls = machine(gpus=(A100,), package=False)
    (sentence,) = sentences(lambda: switch.enable(model), convolve)
    assert "(sm_80_cudnn): there are models of sm_90_cudnn alone" in sentence and not calls


def test_the_model_is_looked_for_at_the_first_convolution(machine, convolve, compiled):
    calls = machine()
    switch.enable(verify=0)
    assert calls == ["compiled"]
    convolve()
    assert calls == ["compiled", "capability"] and compiled.counts() == (1, 1)


def test_a_gpu_that_is_known_by_its_first_convolution_alone(machine, convolve, compiled):
    calls = machine(gpus=(A100,), seen=())
    (sentence,) = sentences(switch.enable, convolve)
    assert "no models for the GPU (sm_80_cudnn)" in sentence
    assert calls == ["compiled", "capability"] and compiled.counts() == (1, 0)


OLD_COMPILER = """#!/bin/sh
case "$*" in *-dumpfullversion*|--version|-v) echo 4.8.5; exit;; esac
echo "c++: error: unrecognized command line option '-std=c++20'" >&2
exit 1
"""


@pytest.mark.parametrize(
    ("program", "message"),
    [(OLD_COMPILER, "error: unrecognized command line option"), (None, "not found|No such file|cannot be compiled")],
    ids=["too old", "absent"],
)
def test_a_compiler(machine, convolve, monkeypatch, tmp_path, program, message):
    compiler = tmp_path / "c++"
    if program:
        compiler.write_text(program)
        compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    load = extension.load.__wrapped__
    machine(load=lambda: load(PLANS))
    for _ in range(2):
        (sentence,) = sentences(switch.enable, convolve)
        assert re.search(message, sentence) and "takes a C++ compiler and ninja" in sentence
        assert len(sentence.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"verify": -1}, "verify is -1; give the number"),
        ({"verify": "2"}, "verify is '2'; give"),
        ({"verify": 1.5}, r"verify is 1\.5; give"),
        ({"verify": True}, "verify is True; give"),
        ({"model": 3}, "model is 3; give the path of a folder"),
        ({"model": ""}, "model is ''; give"),
        ({"model": "no/such/folder"}, "no/such/folder: has no models"),
        ({"model": "gfx"}, "its models are of gfx950, not of cuDNN's plans"),
        ({"choices": 7}, "choices is 7; give"),
        ({"choices": ["a"]}, r"choices is \['a'\]; give"),
        ({"choices": __file__}, r"choices is '.*test_machines\.py'; give the path of a folder"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("gpus", [(), (H100,)], ids=["no GPU", "H100"])
def test_arguments_that_are_none_are_refused_on_every_machine(machine, model, tmp_path, gpus, arguments, message):
    machine(gpus=gpus)
    if arguments.get("model") == "gfx":
        index = (model / "index.json").read_text().replace("sm_90_cudnn", "gfx950")
        (model / "index.json").write_text(index.replace("sm_90_h200", "gfx950_mi355x"))
        arguments = {"model": model}
    with pytest.raises(UserError, match=message):
        switch.enable(**arguments)
    with pytest.raises(UserError, match=message):
        switch.enabled(**arguments)
    assert switch._active is None


def test_threads_leave_their_scopes_in_any_order(machine, compiled):
    machine()
    steps = [threading.Event() for _ in range(3)]

    def first():
        with switch.enabled(verify=0):
            steps[0].set()
            steps[1].wait(10)
        steps[2].set()

    thread = threading.Thread(target=first)
    thread.start()
    steps[0].wait(10)
    with switch.enabled(verify=1):
        steps[1].set()
        steps[2].wait(10)
        assert switch._active.verify == 1  # the first thread has left
    thread.join()
    assert switch._active is None and len(switch._scopes) == 1
    switch.enable(verify=3)
    with switch.enabled(verify=1):
        switch.disable()
        assert switch._active is None
    assert switch._active.verify == 3


def test_the_switch_is_turned_while_threads_convolve(machine, convolve):
    machine()
    threads = [threading.Thread(target=convolve, args=(300,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        with switch.enabled(verify=0):
            pass
    for thread in threads:
        thread.join()


FORKED = """
import os, sys
import torch
sys.path.insert(0, {folder!r})
import torch_on_cpu
from pathlib import Path
from tileseer.torch import extension
torch.set_num_threads(1)
torch_on_cpu.chooser.Selector = torch_on_cpu.Selector
chooser = torch_on_cpu.turn_on(Path(sys.argv[1]), 0, Path(sys.argv[2]), extension.load(torch_on_cpu.PLANS))
child = os.fork()
layer = torch.nn.Conv2d(8, 8, 3).bfloat16().to(memory_format=torch.channels_last)
x = torch.randn(1, 8, 9, 9).bfloat16().to(memory_format=torch.channels_last)
with torch.no_grad():
    for _ in range(4):
        layer(x)
assert chooser.extension.counts() == (1, 1), chooser.extension.counts()
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_program_may_fork_after_it_has_enabled(model, compiled, offer, tmp_path):
    script = FORKED.format(folder=os.path.dirname(torch_on_cpu.__file__))
    command = [sys.executable, "-c", script, str(model), str(tmp_path / "choices")]
    subprocess.run(command, check=True, timeout=120)
    assert len(list(Path(f"{tmp_path}/choices.tuned").iterdir())) >= 1


def test_nothing_that_pytorch_asks_while_it_compiles_starts_cuda(monkeypatch):
    monkeypatch.delenv("PYTORCH_NVML_BASED_CUDA_CHECK", raising=False)
    with extension._without_starting_cuda():
        assert os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] == "1"
    assert "PYTORCH_NVML_BASED_CUDA_CHECK" not in os.environ


@pytest.mark.parametrize(
    ("library", "advice"),
    [
        ("cudnn 91900", "PyTorch 2.11 brings cuDNN 9.19: install torch==2.11.*, or measure"),
        ("cudnn 92000", "PyTorch 2.13 brings cuDNN 9.20: install torch==2.13.*"),
        ("cudnn 92400", "PyTorch 2.14 brings cuDNN 9.24: install torch==2.14.*"),
        ("cudnn 91200", "measure the plans of your own cuDNN"),
    ],
)
def test_advice_names_the_pytorch_that_brings_a_cudnn(library, advice):
    assert versions.advice_for(library).startswith(advice)
    page = Path("docs/nvidia.md").read_text()
    for pytorch, cudnn in versions.PYTORCH.items():
        assert re.search(rf"^\| (2\.\d+, )*{re.escape(pytorch)}\b.* \| {re.escape(cudnn)} \|", page, re.MULTILINE)
