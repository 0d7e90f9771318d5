"""A profile that does not fit the cluster: one message before the first job, with what the cluster has."""

import pytest

from tileseer.core.errors import UserError
from tileseer.core.slurm import ClusterJob, refuse_jobs

SBATCH = """#!/bin/sh
echo "$@" >> {log}
case "$*" in
*--partition=cpu*--gpus*) echo "sbatch: error: use --gres here" >&2; exit 1;;
*--partition=gone*) echo "allocation failure: Invalid partition name specified" >&2; exit 1;;
*--partition=down*) echo "allocation failure: Required Node not available (down, drained or reserved)" >&2; exit 1;;
*--account=ours*) exit 0;;
esac
echo "allocation failure: Invalid account or account/partition combination specified" >&2
exit 1
"""
OURS = {"slurm_account": "ours", "slurm_partition": "cpu"}


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """Put the programs of a cluster on the path; return the log of what was asked."""
    log = tmp_path / "asked"
    programs = {
        "sbatch": SBATCH.format(log=log),
        "sinfo": "#!/bin/sh\necho cpu; echo down; echo a100",
        "sacctmgr": '#!/bin/sh\ncase "$*" in *user=me*) echo ours;; esac',
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return log


def refusal(*jobs, real_gpu=False, group=None):
    try:
        refuse_jobs([ClusterJob(rule, group, resources) for rule, resources in jobs], "me", real_gpu=real_gpu)
    except UserError as error:
        return str(error)
    return ""


def test_the_same_question_is_asked_once_for_all_its_rules(asked):
    resources = OURS | {"mem_mb": 4000, "runtime": 120, "gres": "gpu:1", "gpu": 0}
    assert not refusal(*[(rule, resources) for rule in ("benchmark", "model", "model")])
    assert asked.read_text().splitlines() == [
        "--test-only --output=/dev/null --account=ours --partition=cpu --gres=gpu:1 --mem=4000 --time=120 --wrap=true"
    ]


def test_a_group_is_one_question_with_its_times_together(asked):
    rules = ("headers", {"mem_mb": 100, "runtime": 10}), ("compile", {"mem_mb": 4000, "runtime": 120})
    assert not refusal(*[(rule, OURS | resources) for rule, resources in rules], group="build")
    assert asked.read_text().splitlines() == [
        "--test-only --output=/dev/null --account=ours --partition=cpu --mem=4000 --time=130 --wrap=true"
    ]


def test_account_and_partition_are_asked_for_in_one_message(asked):
    said = refusal(("compile", {"slurm_partition": "cpu"}), ("model", OURS | {"slurm_partition": "gone"}))
    assert "slurm_partition, slurm_account" in said
    assert "compile: sbatch --partition=cpu: allocation failure: Invalid account" in said
    assert "model: sbatch --account=ours --partition=gone: allocation failure: Invalid partition name" in said
    assert "partitions: a100, cpu, down" in said and "your accounts: ours" in said


def test_nodes_that_are_down_now_are_waited_for(asked):
    assert not refusal(("compile", OURS | {"slurm_partition": "down"}))


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        ({"gres": "gpu:1", "gpu": 1}, "benchmark: gres: gpu:1 and gpu: 1 both ask for GPUs; keep the one"),
        ({"gpu": 1}, "benchmark: sbatch --account=ours --partition=cpu --gpus=1: use --gres here"),
        ({"gres": "nvme:1", "gpu": 0}, "benchmark: it measures on a GPU and asks for none; set gres: gpu:1 or gpu: 1"),
    ],
)
def test_a_measuring_job_asks_for_its_gpu_in_one_way(asked, resources, message):
    assert message in refusal(("benchmark", OURS | resources), real_gpu=True)


def test_a_simulated_device_needs_no_gpu(asked):
    assert not refusal(("benchmark", OURS))


def test_a_machine_without_sbatch_says_so(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "there is no sbatch on this machine" in refusal(("compile", OURS))
