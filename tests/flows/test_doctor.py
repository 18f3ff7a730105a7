"""`papa doctor`: what is installed, what the machine has, what answers; and what it
never prints.
"""

from __future__ import annotations

import json
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
    asked = {
        **hub,
        **prefect,
        "HF_TOKEN": TOKEN,
        "PREFECT_API_AUTH_STRING": f"papa:{PASSWORD}",
        "COLUMNS": "80",
    }
    store = tmp_path / "store"
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
    finished = papa(
        "doctor",
        "--json",
        "--store",
        str(tmp_path / "file" / "store"),
        "--ray-address",
        address,
        more=asked,
    )
    assert finished.code == 1, finished.err
    found = json.loads(finished.out)
    assert not found["usable"]
    by_name = {one["what"]: one for one in found["findings"]}
    states = {what: (one["state"], one["broken"]) for what, one in by_name.items()}
    assert states["hub"] == ("refused", False)
    assert states["Prefect"] == ("not reachable", True)
    assert states["MLflow"] == ("not reachable", True)
    assert states["Ray"] == ("not reachable", True)
    assert states["store's disk"] == ("unusable", True)
    assert states["torch"] == ("ok", False)
    for what in ("hub", "Prefect", "MLflow", "Ray", "store's disk"):
        assert by_name[what]["advice"], what
    assert PASSWORD not in finished.out + finished.err
    assert "hf_another" not in finished.out + finished.err


def test_packages_are_held_to_the_distributions_own_metadata(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "papa_attention-7.dist-info"
    own.mkdir()
    wanted = (
        "numpy<1",
        "psutil>=1",
        "there-is-no-such-package>=2",
        "absent-too; extra == 's3'",
        "no-such-engine; extra == 'studies'",
    )
    lines = [
        "Metadata-Version: 2.1",
        "Name: papa-attention",
        "Version: 7",
        "Requires-Python: >=3.9",
    ]
    (own / "METADATA").write_text(
        "\n".join([*lines, *(f"Requires-Dist: {one}" for one in wanted)]) + "\n"
    )
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


def test_a_folder_with_other_things_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").touch()
    found = surroundings._store(Store(tmp_path))
    assert (found.state, found.broken) == ("refused", True)
    assert "holds other things and no PAPA store" in found.found
    assert sorted(path.name for path in tmp_path.iterdir()) == ["thesis.txt"]
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


def test_no_network_is_blamed_for_what_lies_on_this_machine(tmp_path: Path) -> None:
    # Opened for reading, it would wait for who writes.
    os.mkfifo(tmp_path / "papa-store.json")
    found = surroundings._store(Store(tmp_path))
    assert (found.state, found.broken) == ("refused", True)
    assert "papa-store.json cannot be read (it is no file)" in found.found
    assert "network" not in found.advice


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
