"""A store to which somebody else may write, and a folder with somebody else's modules: nothing that
was planted or exchanged there is shown as a study's, and nothing outside is read or written.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.finished import finish_study
from tests.flows.conftest import ENGINES, TINY, Finished, papa, refusal, said, write_study

pytestmark = pytest.mark.server

SECRET = "what lies outside"


@pytest.fixture
def store(tiny: tuple[str, Path], tmp_path: Path) -> Path:
    """A copy of a store with a finished study."""
    shutil.copytree(tiny[1], tmp_path / "store")
    return tmp_path / "store"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder beside the store, as a home folder is."""
    folder = tmp_path / "outside"
    (folder / "small").mkdir(parents=True)
    for name in ("secret.txt", "small/thesis.txt"):
        (folder / name).write_text(SECRET)
    return folder


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def swap(one: Path, other: Path) -> None:
    aside = one.with_name("aside")
    for source, target in ((one, aside), (other, one), (aside, other)):
        source.rename(target)


def test_results_that_were_exchanged_are_nobodys(tiny: tuple[str, Path], store: Path) -> None:
    """Their digests fit, and each says whose it is."""
    finish_study(tiny[0], store, "name=other", "seeds=[1]")
    at = ("--store", str(store))
    table = said("compare", "small", "other", *at).out
    studies = store / "studies"
    swap(studies / "small", studies / "other")
    line = refusal(said("compare", "small", "other", *at))
    assert f"{studies}/small holds the results of study 'other'" in line
    listed = {line.split("\t")[0]: line.split("\t") for line in said("list", *at).out.splitlines()}
    assert listed["small"][4] == listed["other"][4] == "damaged results"
    for name in ("small", "other"):
        assert "holds the results of study" in refusal(said("report", name, *at))
    for changes in ((), ("name=other", "seeds=[1]")):
        assert not finish_study(tiny[0], store, *changes).ran
    assert said("compare", "small", "other", *at).out == table


def test_links_of_a_store_lead_nowhere(
    tiny: tuple[str, Path], store: Path, outside: Path, prefect: dict[str, str]
) -> None:
    """A file that no digest names, and links: a run that places and logs its results anew writes
    and copies nothing of what lies outside.
    """
    before = everything(outside)
    (results,) = (store / "artifacts" / "aggregate").glob("[!.]*")
    (results / ".bashrc").write_text("planted")
    (results / "key.txt").symlink_to(outside / "secret.txt")
    shutil.rmtree(store / "studies" / "small")
    (store / "studies" / "small").symlink_to(outside / "small")
    run = papa("run", tiny[0], "--store", str(store), more=prefect)
    assert f"{store}/studies/small is a link" in refusal(run)
    (store / "studies" / "small").unlink()
    run = papa("run", tiny[0], "--store", str(store), more=prefect)
    assert run.code == 0, run.err
    assert everything(outside) == before
    found = {path.name: path for path in (store / "studies" / "small").rglob("*")}
    assert "report.html" in found
    assert not found.keys() & {".bashrc", "key.txt"}
    copied = [path for path in (store / "mlartifacts").rglob("*") if path.is_file()]
    assert copied
    assert not [path for path in copied if SECRET.encode() in path.read_bytes()]


@pytest.mark.parametrize("name", ["studies", "artifacts", "scratch", "locks", "runs"])
def test_a_folder_of_a_store_that_is_a_link_is_refused(
    tiny: tuple[str, Path], store: Path, outside: Path, name: str
) -> None:
    shutil.rmtree(store / name, ignore_errors=True)
    (store / name).symlink_to(outside)
    before = everything(outside)
    for command in (["run", tiny[0]], ["report", tiny[0]], ["list"], ["prune", "--delete"]):
        line = refusal(said(*command, "--store", str(store)))
        assert f"{store}/{name} is a link" in line
    assert everything(outside) == before


def test_mlflows_places_that_are_links_are_refused(
    tiny: tuple[str, Path], store: Path, outside: Path
) -> None:
    """A database of another program would be migrated, and files be written over."""
    before = everything(outside)
    for name in ("mlflow.db", "mlartifacts/1/report.html"):
        (store / name).unlink(missing_ok=True)
        (store / name).parent.mkdir(parents=True, exist_ok=True)
        (store / name).symlink_to(outside / "secret.txt")
        line = refusal(said("run", tiny[0], "--store", str(store)))
        assert f"{store}/{name} is a link" in line
        (store / name).unlink()
    assert everything(outside) == before


def test_a_study_file_names_no_cluster(tmp_path: Path) -> None:
    """What a cluster answers are pickles, which this process would load."""
    study = write_study(tmp_path, TINY | {"execution": {"ray_address": "10.0.0.1:6379"}})
    line = refusal(said("run", study, "--store", str(tmp_path / "store")))
    assert "unknown key 'execution.ray_address'" in line


PLANTED = ("pyarrow", "numpy", "torch", "psutil", "papa")
POOL = """
from papa.workers import WorkerPool
import tests.workers.parts as parts
with WorkerPool(1, "cpu") as pool:
    print(pool.run(parts.own_process, arguments={}))
"""


def test_workers_import_nothing_from_the_working_folder(tmp_path: Path) -> None:
    fired = tmp_path / "fired"
    for name in PLANTED:
        (tmp_path / f"{name}.py").write_text(f"open({str(fired)!r}, 'w')\n")

    def python(*options: str) -> Finished:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(ENGINES)}
        done = subprocess.run(
            [sys.executable, *options], cwd=tmp_path, capture_output=True, text=True,
            env=kept | {"PYTHONPATH": str(Path(__file__).parents[2])}, timeout=120,
        )  # fmt: skip
        return Finished(done.returncode, done.stdout, done.stderr)

    run = python("-P", "-c", POOL)
    assert run.code == 0, run.err
    assert int(run.out) > 0
    assert not fired.exists()
    python("-c", "import pyarrow")
    assert fired.exists(), "the control: Python itself would"
