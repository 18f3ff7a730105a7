"""Studies on the nodes of a Slurm allocation, by ``infra/slurm/papa.sbatch``."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flows.processes import descendants, wait_until
from tests.integration.service import ROOT, Service
from tests.integration.slurm import SlurmCluster, slurm_cluster
from tests.integration.studies import Findings, findings, papa_run, reviews, to_the_end

SCRIPT = ROOT / "infra" / "slurm" / "papa.sbatch"
STUDY = reviews("slurm", 256, 2, [1, 0.5, 0])


@pytest.fixture(scope="module")
def cluster(short_folder: Path) -> Iterator[SlurmCluster]:
    with slurm_cluster(short_folder / "slurm") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def undisturbed(short_folder: Path) -> Findings:
    """What a run of the study on this machine alone leaves in its store."""
    store = short_folder / "slurm-undisturbed" / "store"
    options = ("--store", str(store), "--workers", "1")
    with papa_run(store.parent, STUDY, {}, *options) as process:
        to_the_end(process)
    return findings(str(store))


@pytest.fixture
def study(cluster: SlurmCluster) -> Path:
    path = cluster.folder / "study.yaml"
    path.write_text(STUDY)
    return path


def test_ray_has_the_gpus_of_the_allocation(cluster: SlurmCluster, study: Path) -> None:
    job = cluster.submit(SCRIPT, study, "--store", cluster.folder / "gpus")
    cluster.waits_for(job, "tokenise ·")
    for name, node in cluster.nodes.items():
        commands = descendants(node.process.pid).values()
        assert any("ray start" in line and "--num-gpus=1" in line for line in commands), name
    cluster.command("scancel", job)
    cluster.wait(job, "CANCELLED")


def kill_what_runs_on(node: Service) -> None:
    """Kill everything that jobs run on a node; Slurm's own processes stay."""
    for pid, command in descendants(node.process.pid).items():
        if not command.startswith("slurm"):
            os.kill(pid, signal.SIGKILL)


def test_a_lost_node_changes_nothing(
    cluster: SlurmCluster, study: Path, undisturbed: Findings
) -> None:
    store = cluster.folder / "killed"
    job = cluster.submit(SCRIPT, study, "--store", store)
    cluster.waits_for(job, "average ·")
    kill_what_runs_on(cluster.nodes["n2"])
    ended = cluster.wait(job, "COMPLETED", "FAILED", "NODE_FAIL")
    assert ended["JobState"] == "COMPLETED", cluster.log(job)
    assert findings(str(store)) == undisturbed


def test_a_study_goes_on(cluster: SlurmCluster, study: Path, undisturbed: Findings) -> None:
    store = cluster.folder / "cancelled"
    job = cluster.submit(SCRIPT, study, "--store", store)
    cluster.waits_for(job, "probe ·")
    cluster.command("scancel", job)
    cluster.wait(job, "CANCELLED")
    partial_findings = findings(str(store))
    assert partial_findings
    assert partial_findings.keys() < undisturbed.keys(), "it was not over"
    rerun = cluster.submit(SCRIPT, study, "--store", store)
    assert cluster.wait(rerun, "COMPLETED", "FAILED")["JobState"] == "COMPLETED", cluster.log(rerun)
    assert findings(str(store)) == undisturbed


def test_a_job_is_queued_again(cluster: SlurmCluster, study: Path, undisturbed: Findings) -> None:
    store = cluster.folder / "requeued"
    job = cluster.submit(SCRIPT, study, "--store", store)
    cluster.waits_for(job, "average ·")
    # What Slurm sends before the limit, which is of minutes.
    cluster.command("scancel", "--batch", "--signal=USR1", job)
    wait_until(lambda: cluster.fields(job)["Restarts"] == "1", "it is queued again")
    # Slurm starts it again after two minutes, unless it is told to begin at once.
    cluster.command("scontrol", "update", f"JobId={job}", "StartTime=now")
    assert cluster.wait(job, "COMPLETED", "FAILED")["JobState"] == "COMPLETED", cluster.log(job)
    assert findings(str(store)) == undisturbed
