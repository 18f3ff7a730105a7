"""A store to which somebody else may write, and a folder with somebody else's modules: nothing that
was planted or exchanged there is shown as a study's, and nothing outside is read or written.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.finished import finish_study
from tests.flows.conftest import everything, papa, refusal, said
from tests.flows.processes import PATIENCE_SECONDS, without_engines

pytestmark = pytest.mark.server

SECRET = "what lies outside"


@pytest.fixture
def store(tiny: tuple[str, Path], tmp_path: Path) -> Path:
    """A copy of a store with a finished study."""
    return Path(shutil.copytree(tiny[1], tmp_path / "store"))


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder beside the store, as a home folder is."""
    folder = tmp_path / "outside"
    (folder / "small").mkdir(parents=True)
    for name in ("secret.txt", "small/thesis.txt"):
        (folder / name).write_text(SECRET)
    return folder


def test_results_that_were_exchanged_are_nobodys(tiny: tuple[str, Path], store: Path) -> None:
    """Their digests fit, and each says whose it is."""
    finish_study(tiny[0], store, "name=other", "seeds=[1]")
    at = ("--store", str(store))
    table = said("compare", "small", "other", *at).out
    studies = store / "studies"
    for one, name in (("small", "aside"), ("other", "small"), ("aside", "other")):
        (studies / one).rename(studies / name)
    line = refusal(said("compare", "small", "other", *at))
    assert f"{studies}/small holds the results of study 'other'" in line
    listed = {line.split("\t")[0]: line.split("\t") for line in said("list", *at).out.splitlines()}
    assert listed["small"][4] == listed["other"][4] == "damaged results"
    assert "holds the results of study" in refusal(said("report", "other", *at))
    for changes in ((), ("name=other", "seeds=[1]")):
        assert not finish_study(tiny[0], store, *changes).ran
    assert said("compare", "small", "other", *at).out == table


def test_links_of_a_store_lead_nowhere(
    tiny: tuple[str, Path], store: Path, outside: Path, prefect: dict[str, str]
) -> None:
    """A file that no digest names, and links: a run that places and logs its results anew writes
    and copies nothing of what lies outside.
    """
    before, placed = everything(outside), store / "studies" / "small"
    (results,) = (store / "artifacts" / "aggregate").glob("[!.]*")
    (results / ".bashrc").write_text("planted")
    (results / "key.txt").symlink_to(outside / "secret.txt")
    shutil.rmtree(placed)
    placed.symlink_to(outside / "small")
    assert f"{placed} is a link" in refusal(said("run", tiny[0], "--store", str(store)))
    placed.unlink()
    run = papa("run", tiny[0], "--store", str(store), more=prefect)
    assert run.code == 0, run.err
    assert everything(outside) == before
    found = {path.name: path for path in placed.rglob("*")}
    assert "report.html" in found
    assert not found.keys() & {".bashrc", "key.txt"}
    copied = [path for path in (store / "mlartifacts").rglob("*") if path.is_file()]
    assert copied
    assert not [path for path in copied if SECRET.encode() in path.read_bytes()]


PLACES = ("studies", "artifacts", "scratch", "locks")
# A database of another program would be migrated, and files be written over.
FILES = ("mlflow.db", "mlartifacts/1/report.html")


@pytest.mark.parametrize("name", [*PLACES, *FILES])
def test_a_place_in_a_store_that_is_a_link_is_refused(
    tiny: tuple[str, Path], store: Path, outside: Path, name: str
) -> None:
    place, before = store / name, everything(outside)
    if place.is_dir():
        shutil.rmtree(place)
    place.unlink(missing_ok=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(outside / "secret.txt" if place.suffix else outside)
    given = {"run": [tiny[0]], "report": [tiny[0]], "list": [], "prune": ["--delete"]}
    for command in given if name in PLACES else ["run"]:
        line = refusal(said(command, *given[command], "--store", str(store)))
        assert f"{place} is a link" in line
    assert everything(outside) == before


POOL = """
from papa.workers import WorkerPool
import tests.workers.parts as parts
with WorkerPool(1, "cpu") as pool:
    print(pool.run(parts.own_process, arguments={}))
"""


def test_workers_import_nothing_from_the_working_folder(tmp_path: Path) -> None:
    fired = tmp_path / "fired"
    for name in ("pyarrow", "numpy", "torch", "psutil", "papa"):
        (tmp_path / f"{name}.py").write_text(f"open({str(fired)!r}, 'w')\n")

    def python(*options: str) -> str:
        path = {"PYTHONPATH": str(Path(__file__).parents[2])}
        return subprocess.run(
            [sys.executable, *options], cwd=tmp_path, stdout=subprocess.PIPE, text=True,
            env=without_engines() | path, timeout=PATIENCE_SECONDS, check=True,
        ).stdout  # fmt: skip

    assert int(python("-P", "-c", POOL)) > 0
    assert not fired.exists()
    python("-c", "import pyarrow")
    assert fired.exists(), "the control: Python itself would"
