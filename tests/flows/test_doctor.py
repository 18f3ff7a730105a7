"""`papa doctor`: what is installed, what the machine has, what answers; and what it
never prints.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from flows import surroundings
from flows.doctor import installed
from papa.errors import TransientError
from papa.storage.filesystem import in_time
from papa.study.store import Store
from tests.flows.conftest import papa
from tests.hub.conftest import environment_of
from tests.hub.server import TOKEN, Hub
from tests.storage.conftest import disk  # noqa: F401

METADATA = """Metadata-Version: 2.1
Name: papa-attention
Version: 7
Requires-Python: >=3.9
Requires-Dist: numpy<1
Requires-Dist: psutil>=1
Requires-Dist: there-is-no-such-package>=2
Requires-Dist: absent-too; extra == 's3'
Requires-Dist: no-such-engine; extra == 'studies'
"""
PASSWORD = "aPasswordThatNobodyMayRead"


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[dict[str, str]]:
    """For processes: a hub on loopback."""
    hub = Hub()
    hub.start()
    yield environment_of(hub, tmp_path)
    hub.stop()


@pytest.fixture
def closed() -> Iterator[int]:
    """A port on which nobody listens."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        yield one.getsockname()[1]


@pytest.mark.server
def test_a_machine_on_which_studies_can_run(
    tmp_path: Path, hub: dict[str, str], prefect: dict[str, str]
) -> None:
    secrets = {"HF_TOKEN": TOKEN, "PREFECT_API_AUTH_STRING": f"papa:{PASSWORD}"}
    store, asked = tmp_path / "store", {**hub, **prefect, **secrets, "COLUMNS": "80"}
    finished = papa("doctor", "--store", str(store), more=asked)
    assert finished.code == 0, finished.err
    assert max(map(len, finished.out.splitlines())) <= 80
    text = " ".join(finished.out.split())
    for heading in ("Packages", "Machine", "Services", "Torch"):
        assert heading in text
    assert "Studies can run here." in text
    assert "; the token is valid" in text
    assert "ok Prefect http://127.0.0.1:" in text
    assert "not configured Ray" in text
    assert TOKEN not in finished.out + finished.err
    assert PASSWORD not in finished.out + finished.err
    # It looks, and makes nothing.
    assert not store.exists()


@pytest.mark.server
def test_a_machine_on_which_studies_cannot_run(
    tmp_path: Path, hub: dict[str, str], closed: int
) -> None:
    (tmp_path / "file").touch()
    asked = {
        **hub,
        "HF_TOKEN": "hf_another",
        "PREFECT_API_URL": f"http://127.0.0.1:{closed}/api",
        "PREFECT_API_AUTH_STRING": f"papa:{PASSWORD}",
        "MLFLOW_TRACKING_URI": f"http://papa:{PASSWORD}@127.0.0.1:{closed}",
    }
    address = f"127.0.0.1:{closed}"
    where = ("--store", str(tmp_path / "file" / "store"), "--ray-address", address)
    finished = papa("doctor", *where, more=asked)
    assert finished.code == 1, finished.err
    text = " ".join(finished.out.split())
    services = ("MLflow", "Prefect", "Ray")
    unreachable = [f"not reachable {service}" for service in services]
    for told in ("refused hub", "unusable store's disk", "ok torch", *unreachable):
        assert told in text
    mended = text.rpartition("Studies cannot run: mend ")[2].removesuffix(".").split(", ")
    assert {"store's disk", *services} <= {*mended}
    assert not {"hub", "torch"} & {*mended}
    assert text.count("→") >= 5
    assert PASSWORD not in finished.out + finished.err
    assert "hf_another" not in finished.out + finished.err


def test_packages_are_held_to_the_distributions_own_metadata(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "papa_attention-7.dist-info"
    own.mkdir()
    (own / "METADATA").write_text(METADATA)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    listed = installed()
    assert listed[-1].advice == "pip install 'papa-attention[studies]'"
    assert {one.what: (one.state, one.broken) for one in listed} == {
        "Python": ("ok", False),
        "papa-attention": ("ok", False),
        "numpy": ("unsupported", False),
        "psutil": ("ok", False),
        "there-is-no-such-package": ("missing", True),
        "no-such-engine": ("missing", True),
    }


def test_what_lies_on_this_machine_is_no_store(tmp_path: Path) -> None:
    for name in ("other", "pipe"):
        (tmp_path / name).mkdir()
    (tmp_path / "other" / "thesis.txt").touch()
    # Opened for reading, it would wait for who writes.
    os.mkfifo(tmp_path / "pipe" / "papa-store.json")
    for name, sentence in {
        "other": "holds other things and no PAPA store",
        "pipe": "papa-store.json cannot be read (it is no file)",
    }.items():
        before = [path.name for path in (tmp_path / name).iterdir()]
        found = surroundings._store(Store(tmp_path / name))
        assert (found.state, found.broken) == ("refused", True)
        assert sentence in found.found
        assert "network" not in found.advice
        assert [path.name for path in (tmp_path / name).iterdir()] == before
    Store(tmp_path / "new").make()
    assert surroundings._store(Store(tmp_path / "new")).state == "ok"


def test_who_never_answers_costs_no_more_than_the_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surroundings, "PATIENCE", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()

        def ask() -> str:
            with socket.create_connection(silent.getsockname()) as connection:
                return str(connection.recv(1))

        found = surroundings._asked("service", "there", ask, broken=True)
    assert (found.state, found.broken) == ("not reachable", True)
    assert "no answer within 0.2 seconds" in found.found


def test_what_a_limited_action_returns_and_raises_arrives() -> None:
    assert in_time(60, lambda: 7) == 7

    def fail() -> None:
        raise TransientError("gone")

    with pytest.raises(TransientError, match="gone"):
        in_time(60, fail)


@pytest.mark.server
def test_a_full_disk_cannot_be_written(disk: Path) -> None:  # noqa: F811
    assert surroundings._disk("store's disk", disk / "store", broken=True).state == "low"
    with (disk / "filling").open("wb", buffering=0) as filling, suppress(OSError):
        while True:
            filling.write(bytes(2**16))
    found = surroundings._disk("store's disk", disk / "store", broken=True)
    assert (found.state, found.broken) == ("unusable", True)
    assert "No space left" in found.found
