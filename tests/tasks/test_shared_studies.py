"""Studies of a store behind a URI, as another machine sees them."""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from socket import gethostname

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from papa.errors import SpecError
from papa.flows.cli.lists import stored_studies
from papa.spec.file import load_study
from papa.storage import locks
from papa.storage.locks import StoreRun, active_runs, in_use
from papa.storage.store import Store
from papa.tasks.manifest import open_study
from papa.tasks.study_files import fetch_studies, save_study
from tests.finished import finish_study
from tests.flows.conftest import TINY, write_study
from tests.flows.processes import wait_until


class Machines:
    """Machines, each with a cache of its own, which reach one store behind a URI."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        self._monkeypatch = monkeypatch
        self._address = f"memory://{uuid.uuid4().hex[:12]}"

    def store(self, machine: str) -> Store:
        """Go to a machine; return the store as it is seen there."""
        self._monkeypatch.setenv("PAPA_CACHE", str(self._folder / machine))
        return Store(self._address)


@pytest.fixture
def machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machines]:
    yield Machines(tmp_path, monkeypatch)
    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]


@pytest.fixture
def study(shallow: str, tmp_path: Path) -> str:
    return write_study(tmp_path, TINY | {"encoders": [shallow]})


def test_another_machine_opens_a_finished_study(machines: Machines, study: str) -> None:
    first = machines.store("first")
    finish_study(study, first.address)
    results = open_study(first, "small").results
    second = machines.store("second")
    with pytest.raises(SpecError):
        open_study(second, "small")
    fetch_studies(second)
    assert open_study(second, "small").results.equals(results)


def test_another_machine_reads_why_a_study_failed(machines: Machines, study: str) -> None:
    first = machines.store("first")
    first.make()
    save_study(first, load_study(Path(study)))
    first.write_study_file("small.failed", b"the loss is nan\n")
    second = machines.store("second")
    fetch_studies(second)
    assert second.study_path("small.failed").read_text() == "the loss is nan\n"
    assert load_study(second.study_path("small.yaml")).name == "small"
    machines.store("first").remove_study_file("small.failed")
    second = machines.store("second")
    fetch_studies(second)
    assert not second.study_path("small.failed").exists()


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{", b'{"artifact": 1}', b'{"artifact": "aggregate/0", "digest": ""}']
)
def test_results_that_cannot_be_found_are_none(machines: Machines, content: bytes) -> None:
    store = machines.store("first")
    store.make()
    assert store.shared_studies is not None
    store.shared_studies.write("small.json", content, replace=True)
    fetch_studies(store)
    assert not store.study_path("small").exists()


def test_another_machine_lists_a_study_that_runs_as_running(machines: Machines) -> None:
    first = machines.store("first")
    first.make()
    save_study(first, load_study(Path("studies/demo.yaml")))
    with in_use(first, "demo"):
        second = machines.store("second")
        (running,) = stored_studies(second)
    (ended,) = stored_studies(second)
    assert (running.state, ended.state) == ("running", "not finished")


KILLED = "run-elsewhere-1-0123abcd-small.lock"


def test_a_run_that_is_silent_for_long_is_over(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = machines.store("first")
    store.files.write(f"runs/{KILLED}", b"")
    assert active_runs(store) == [StoreRun("elsewhere-1", "small")]
    monkeypatch.setattr(locks, "_SILENT_SECONDS", 0.0)
    assert active_runs(store) == []
    assert not store.files.find("runs")


def test_a_run_of_this_machine_is_over_once_its_lock_is_free(machines: Machines) -> None:
    store = machines.store("first")
    store.files.write(f"runs/{KILLED}", b"")
    (store.locks / KILLED).parent.mkdir(parents=True)
    (store.locks / KILLED).touch()
    assert active_runs(store) == []
    assert not store.files.find("runs")


def test_a_run_goes_on_if_it_cannot_tell_others(machines: Machines) -> None:
    store = machines.store("first")
    store.files.write("runs", b"a file in the folder's place")
    with in_use(store, "small"):
        assert active_runs(store) == [StoreRun(f"{gethostname()}-{os.getpid()}", "small")]


def test_the_file_of_a_run_is_written_again(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "_RENEWAL_SECONDS", 0.01)
    store = machines.store("first")
    with in_use(store, "small"):
        (name,) = store.files.find("runs")
        store.files.remove(f"runs/{name}")
        wait_until(lambda: store.files.find("runs"), "it is there again")
