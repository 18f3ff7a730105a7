"""A Slurm cluster of two nodes on one machine, each in a network namespace of the tests."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from papa.flows.ports import free_port
from tests.flows.processes import wait_until
from tests.integration.__main__ import HOST, MOUNTS, OTHER
from tests.integration.service import Service, clean, started, wait_ready
from tests.integration.services import namespace

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "munged", "nsenter", "unshare")
CONFIGURATION = """\
ClusterName=papa
SlurmctldHost=n1({host})
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
SlurmctldPort={controller_port}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmdLogFile={folder}/slurmd-%n.log
SlurmctldLogFile={folder}/slurmctld.log
KillWait=30
OverTimeLimit=0
GresTypes=gpu
NodeName=n1 NodeAddr={host} CPUs=1 RealMemory=1000 Gres=gpu:1 Port={first_port}
NodeName=n2 NodeAddr={other} CPUs=1 RealMemory=1000 Gres=gpu:1 Port={second_port}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
# Slurm counts them, and sets what a job reads; nothing computes on them.
GPUS = "Name=gpu File=/dev/null"
NODE = """
# A host of its own: its name, its /tmp, where only the cluster's folder is shared, and its hosts.
set -e
name=$1 folder=$2
hostname "$name"
mount --bind "$folder" /mnt
mount -t tmpfs none /tmp
mkdir -p "$folder"
mount --bind /mnt "$folder"
mount --bind "$folder/hosts" /etc/hosts
if [ "$name" = n1 ]; then slurmctld -D -f "$folder/slurm.conf" & fi
exec slurmd -D -N "$name" -f "$folder/slurm.conf"
"""


@dataclass(frozen=True)
class SlurmCluster:
    """A running cluster.

    Attributes:
        folder: Which both nodes see.
        nodes: The services of the nodes n1 and n2; every process of a node is below its service.
    """

    folder: Path
    nodes: Mapping[str, Service]

    def command(self, *command: str | Path, **environment: str) -> str:
        """Run one of Slurm's commands; return what it printed."""
        done = subprocess.run(
            command,
            env=clean(self.folder, {"SLURM_CONF": str(self.folder / "slurm.conf"), **environment}),
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def submit(self, script: Path, *arguments: str | Path, minutes: int = 30) -> str:
        """Queue the job script on both nodes; return the job's number."""
        options = ["--parsable", "--nodes=2", "--cpus-per-task=1", "--gres=gpu:1"]
        options += [f"--time={minutes}", f"--output={self.folder}/%j.log"]
        return self.command("sbatch", *options, script, *arguments).strip()

    def log(self, job: str) -> str:
        """Return what a job printed so far."""
        path = self.folder / f"{job}.log"
        return path.read_text() if path.exists() else ""

    def fields(self, job: str) -> dict[str, str]:
        """Return what Slurm shows of a job, such as JobState and ExitCode."""
        words = self.command("scontrol", "--oneliner", "show", "job", job).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def wait(self, job: str, *states: str) -> dict[str, str]:
        """Wait until a job is in one of these states; return what Slurm shows of it."""
        wait_until(lambda: self.fields(job)["JobState"] in states, f"{job} is {states}")
        return self.fields(job)

    def waits_for(self, job: str, text: str) -> None:
        """Wait until a job has printed a text."""

        def is_there() -> bool:
            state = self.fields(job)["JobState"]
            assert text in self.log(job) or state in ("PENDING", "RUNNING"), self.log(job)
            return text in self.log(job)

        wait_until(is_there, f"job {job} prints {text!r}")


@contextmanager
def slurm_cluster(folder: Path) -> Iterator[SlurmCluster]:
    """Start a cluster in a new folder; skip the test where Slurm is not installed."""
    missing = [name for name in PROGRAMS if shutil.which(name, path=clean(folder)["PATH"]) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed: apt-get install slurm-wlm munge")
    namespaces = dict(zip(("n1", "n2"), namespace(), strict=True))
    for name in ("munge", "state", "spool/n1", "spool/n2"):
        (folder / name).mkdir(parents=True)
    folder.chmod(0o755)
    key = folder / "munge" / "key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    (folder / "hosts").write_text(f"127.0.0.1 localhost\n{HOST} n1\n{OTHER} n2\n")
    configuration = CONFIGURATION.format(
        host=HOST,
        other=OTHER,
        folder=folder,
        controller_port=free_port(),
        first_port=free_port(),
        second_port=free_port(),
    )
    (folder / "slurm.conf").write_text(configuration)
    (folder / "gres.conf").write_text(f"{GPUS}\n")
    munge = ["munged", "--foreground", "--force", f"--key-file={key}"]
    for option in ("socket", "pid-file", "log-file", "seed-file"):
        munge.append(f"--{option}={folder}/munge/{option.removesuffix('-file')}")
    with ExitStack() as running:
        running.enter_context(started(munge, folder / "munge-service", {}))
        nodes = {}
        for name, net in namespaces.items():
            # The mounts are the machine's: `ip netns exec`, which runs the tests, hides control
            # groups, and slurmd ends where it finds none.
            enter = ["nsenter", f"--net=/run/netns/{net}", f"--mount={os.environ[MOUNTS]}"]
            enter += ["unshare", "--uts", "--mount", "--pid", "--fork", "--mount-proc"]
            enter += ["--kill-child", "sh", "-c", NODE, "sh"]
            service = started([*enter, name, str(folder)], folder / name, {})
            nodes[name] = running.enter_context(service)
        cluster = SlurmCluster(folder, nodes)

        def is_idle() -> bool:
            with suppress(AssertionError):
                return cluster.command("sinfo", "--noheader", "--format=%D %t").strip() == "2 idle"
            return False

        wait_ready(nodes["n1"], is_idle)
        yield cluster
