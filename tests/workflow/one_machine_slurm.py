"""A real SLURM on this machine alone: a controller, two CPU nodes, one with memory, and one with a GPU that is none.

It needs root and Debian's packages slurmctld, slurmd, slurm-client and munge. All of it listens on the loopback
interface; everything that is started here is stopped here, by the process ids that the daemons wrote.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SYSTEM = Path("/etc/slurm")
"""Where clients look. The environment variable will not do: the executor plugin removes it before it calls srun."""
NODES = ("cpu1", "cpu2", "mem1", "gpu1")
CLIENT_S = 10

CONF = """\
ClusterName=tileseer
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=cred_expire=10
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/run/slurmctld.pid
SlurmdPidFile={folder}/run/slurmd.%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd.%n.log
SlurmctldPort=26817
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
MpiDefault=none
SwitchType=switch/none
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1,bf_interval=1,sched_min_interval=0,batch_sched_delay=0
MinJobAge=7200
KillWait=2
ReturnToService=2
SlurmdTimeout=15
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
Epilog={folder}/etc/epilog
MailProg=/bin/true
GresTypes=gpu
NodeName=cpu[1-2] NodeHostname={host} NodeAddr=127.0.0.1 Port=[27001-27002] CPUs=16 Sockets=1 CoresPerSocket=16 \
ThreadsPerCore=1 RealMemory=40000 State=UNKNOWN
NodeName=mem1 NodeHostname={host} NodeAddr=127.0.0.1 Port=27003 CPUs=16 Sockets=1 CoresPerSocket=16 \
ThreadsPerCore=1 RealMemory=128000 State=UNKNOWN
NodeName=gpu1 NodeHostname={host} NodeAddr=127.0.0.1 Port=27004 CPUs=16 Sockets=1 CoresPerSocket=16 \
ThreadsPerCore=1 RealMemory=40000 Gres=gpu:fake:1 State=UNKNOWN
PartitionName=cpu Nodes=cpu[1-2] Default=YES LLN=YES MaxTime=INFINITE State=UP
PartitionName=memory Nodes=mem1 MaxTime=INFINITE State=UP
PartitionName=gpu Nodes=gpu1 MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=urgent Nodes=gpu1 MaxTime=INFINITE State=UP PriorityTier=2 PreemptMode=OFF
"""
# A count without a file counts as no GPU at all.
GRES = "NodeName=gpu1 Name=gpu Type=fake File=/dev/null\n"
# Runs on the node at the end of each job. It plays a shared file system on which a file is seen late by others: the
# file that is named in ``late`` goes away.
EPILOG = """\
#!/bin/sh
path=$(cat {folder}/late 2> /dev/null) && [ -e "$path" ] || exit 0
rm {folder}/late
mv "$path" {folder}/hidden
"""


class Cluster:
    """A running cluster."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def jobs(self, *states: str) -> list[dict[str, str]]:
        """Return the jobs in one of the states: id, state, partition, node and comment (the rule)."""
        form = "%i|%T|%P|%N|%k|%b"
        lines = client("squeue", "-h", "-a", "-t", ",".join(states) or "all", "-o", form).splitlines()
        names = ("id", "state", "partition", "node", "comment", "gres")
        return [dict(zip(names, line.split("|"), strict=True)) for line in lines]

    def restarts(self, job: str) -> int:
        """Return how often SLURM itself started a job again."""
        return int(re.search(r"Restarts=(\d+)", client("scontrol", "show", "job", job))[1])

    def fail_node(self, node: str) -> None:
        """Kill a node's daemon and everything that runs there, as when its power fails; nobody tells the controller."""
        # The daemon first: it would report that its jobs ended.
        daemon = self.folder / f"run/slurmd.{node}.pid"
        os.kill(int(daemon.read_text()), signal.SIGKILL)
        daemon.unlink()
        for job in self.jobs("RUNNING"):
            if job["node"] == node:
                _send(signal.SIGKILL, [*_daemons(job["id"]), *_processes(job["id"])])

    def hang(self, job: str) -> None:
        """Stop all processes of a job, so that it never ends by itself."""

        def stopped() -> bool:
            # One that was just started is not in the list, and one in the list may start another.
            before = _processes(job)
            _send(signal.SIGSTOP, before)
            return before != [] and _processes(job) == before and all(_state(pid) in "TZ" for pid in before)

        wait_for(stopped, f"all of job {job} to stop")

    def hide(self, path: Path) -> None:
        """Let a file vanish when the job that makes it ends."""
        (self.folder / "late").write_text(str(path))

    def show(self, path: Path) -> None:
        """Let the hidden file come back."""
        (self.folder / "hidden").rename(path)

    def start_node(self, node: str) -> None:
        """Start the daemon of a node and wait until the controller uses it."""
        subprocess.run([_program("slurmd"), "-N", node], check=True, timeout=CLIENT_S)
        wait_for(lambda: self._state(node) == "idle", f"node {node} to come up")

    def _state(self, node: str) -> str:
        return client("sinfo", "-h", "-n", node, "-o", "%T").split("\n")[0].strip("*~#")


def _daemons(job: str) -> list[int]:
    """Return the daemons that keep the steps of a job."""
    return [pid for pid in _pids() if _text(pid, "cmdline").startswith(f"slurmstepd: [{job}.")]


def _processes(job: str) -> list[int]:
    """Return what a job's daemons have started, and what that has started."""
    children: dict[int, list[int]] = {}
    for pid in _pids():
        # The name, in brackets, may hold anything.
        fields = _text(pid, "stat").rpartition(")")[2].split()
        if fields:
            children.setdefault(int(fields[1]), []).append(pid)
    found = [child for pid in _daemons(job) for child in children.get(pid, [])]
    for pid in found:
        found += children.get(pid, [])
    return found


def _state(pid: int) -> str:
    return (_text(pid, "stat").rpartition(")")[2].split() or ["Z"])[0]


def _send(number: signal.Signals, pids: list[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").glob("[0-9]*")]


def _text(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text(errors="replace")
    except OSError:
        # Ended by now.
        return ""


def client(*command: str) -> str:
    """Call a SLURM client. With a limit: one that finds no controller tries again for minutes."""
    run = subprocess.run(command, capture_output=True, text=True, timeout=CLIENT_S)
    if run.returncode:
        raise RuntimeError(f"{' '.join(command)}: {run.stderr}")
    return run.stdout


def wait_for(condition: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            if condition():
                return
        except (RuntimeError, subprocess.TimeoutExpired):
            # The controller does not answer yet.
            pass
        assert time.monotonic() < deadline, f"waited {seconds:.0f} s for {what}"
        time.sleep(0.1)


def missing() -> str:
    """Return why no cluster can be started here; empty if one can."""
    absent = [name for name in ("slurmctld", "slurmd", "squeue", "munged") if not _program(name)]
    if absent:
        return f"not installed: {', '.join(absent)} (apt-get install slurmctld slurmd slurm-client munge)"
    if os.getuid() != 0:
        return "starting a SLURM needs root"
    if any((SYSTEM / name).exists() for name in ("slurm.conf", "gres.conf")):
        return f"{SYSTEM} holds the configuration of another cluster"
    return ""


@contextmanager
def running(folder: Path) -> Iterator[Cluster]:
    """Start a cluster whose files are below ``folder``; stop it at the end, whatever happened."""
    for name in ("etc", "state", "log", "run", "spool"):
        (folder / name).mkdir(parents=True)
    host = socket.gethostname().split(".")[0]
    (folder / "etc/slurm.conf").write_text(CONF.format(host=host, folder=folder))
    (folder / "etc/gres.conf").write_text(GRES)
    (folder / "etc/epilog").write_text(EPILOG.format(folder=folder))
    (folder / "etc/epilog").chmod(0o755)
    munge = None
    SYSTEM.mkdir(exist_ok=True)
    links = [SYSTEM / "slurm.conf", SYSTEM / "gres.conf"]
    try:
        for link in links:
            # Left by a cluster that could not stop itself; one that leads somewhere was refused by missing().
            link.unlink(missing_ok=True)
            link.symlink_to(folder / "etc" / link.name)
        if subprocess.run(["munge", "-n"], capture_output=True).returncode:
            munge = _start_munge(folder / "log/munged.log")
        subprocess.run([_program("slurmctld"), "-i", "-c"], check=True, capture_output=True, timeout=CLIENT_S)
        wait_for(lambda: "is UP" in client("scontrol", "ping"), "the controller")
        cluster = Cluster(folder)
        for node in NODES:
            cluster.start_node(node)
        yield cluster
    finally:
        for path in sorted((folder / "run").glob("slurmd.*.pid")):
            _signal(path, signal.SIGTERM)
        _signal(folder / "run/slurmctld.pid", signal.SIGTERM)
        if munge:
            munge.terminate()
            munge.wait()
        for link in links:
            link.unlink(missing_ok=True)


def _start_munge(log: Path) -> subprocess.Popen[bytes]:
    folder = Path("/run/munge")
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)
    shutil.chown(folder, "munge", "munge")
    command = ["setpriv", "--reuid=munge", "--regid=munge", "--clear-groups", _program("munged"), "--foreground"]
    with log.open("w") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=stream)
    wait_for(lambda: not subprocess.run(["munge", "-n"], capture_output=True).returncode, "munge")
    return process


def _program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")


def _signal(pid_file: Path, number: signal.Signals) -> None:
    try:
        pid = int(pid_file.read_text())
        os.kill(pid, number)
    except (OSError, ValueError):
        # Not started, or ended already.
        return
    deadline = time.monotonic() + CLIENT_S
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    pid_file.unlink(missing_ok=True)
