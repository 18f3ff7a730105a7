"""A store that a group shares, by two users of it; in a real file system, as root."""

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.flows.conftest import TINY, write_study

ROOT = Path(__file__).parents[2]
GROUP = 64_321
pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may take other users' accounts"),
    pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv is not installed"),
]

PROGRAM = """
import sys, numpy
from safetensors.numpy import load_file, save_file
from papa.storage.artifacts import published, remove, verified
from papa.storage.locks import claimed
from papa.storage.store import Store
store = Store(sys.argv[1])
artifact = store.folder("probe", "0" * 64)
"""
PUBLISH = f"""{PROGRAM}
store.make()
with published(artifact, {{"stage": "probe", "key": "0" * 64}}) as folder:
    (folder / "inner").mkdir()
    save_file({{"weights": numpy.ones(2)}}, folder / "inner" / "weights.safetensors")
"""
READ = f"""{PROGRAM}
print(load_file(verified(artifact) / "inner" / "weights.safetensors")["weights"].sum().item())
"""
REMOVE = f"{PROGRAM}remove(artifact)"
LOCK = f"""{PROGRAM}
with claimed(store, "study-shared"):
    print("held")
"""
STUDY = """
import sys
from tests.finished import finish_study
print(len(finish_study(sys.argv[1], *sys.argv[2:]).ran))
"""
LIST = """
import sys
from papa.flows.cli import app
app(["list", "--json", "--store", sys.argv[1]])
"""
COMPUTE = """
import os, signal, sys
from papa.progress import ignore_progress
from papa.spec import ExecutionSpec
from papa.storage.store import Store
from papa.tasks.context import Context
from papa.tasks.step import Stage, Step
store = Store(sys.argv[1])
store.make()
step = Step(Stage(print, "probe", 1, "any worker"), "probe", {})
with Context((step,), store, ExecutionSpec(), ignore_progress).scratch_folder() as folder:
    (folder / "values.bin").write_bytes(b"features")
    if sys.argv[2] == "is killed":
        os.kill(os.getpid(), signal.SIGKILL)
"""
UNCOVER = """
mkdir -p "$1" && mount --bind "$3" "$1" && mount -t tmpfs -o mode=755 none "$2" &&
mkdir -p "$3" && mount --bind "$1" "$3" && shift 3 && exec "$@"
"""
"""Run a command where a folder that only root may enter shows one folder below it to everybody."""


def as_everybody_sees(folder: Path) -> list[str]:
    """Return what lets other users start this Python, even from below the home of root."""
    program = Path(sys.executable).resolve()
    for path in reversed(program.parents):
        if not path.stat().st_mode & 0o001:
            below = path / program.relative_to(path).parts[0]
            mounts = [str(folder / "python"), str(path), str(below)]
            return ["unshare", "--mount", "sh", "-c", UNCOVER, "sh", *mounts]
    return []


@dataclass(frozen=True)
class User:
    """An account whose own group is not the one that shares the store."""

    number: int
    home: Path
    umask: str = "022"
    groups: Sequence[int] = (GROUP,)

    def run(self, *command: str | Path) -> subprocess.CompletedProcess[str]:
        """Run a command with this account, with a home, cache and umask of its own."""
        self.home.mkdir(exist_ok=True)
        os.chown(self.home, self.number, self.number)
        account = [f"--reuid={self.number}", f"--regid={self.number}"]
        groups = ",".join(map(str, self.groups))
        account += [f"--groups={groups}"] if groups else ["--clear-groups"]
        shell = ["sh", "-c", f'umask {self.umask}; exec "$0" "$@"']
        return subprocess.run(
            [*as_everybody_sees(self.home.parent), "setpriv", *account, *shell, *command],
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(self.home),
                "PAPA_CACHE": str(self.home / "cache"),
                "PYTHONPATH": str(ROOT),
                "OMP_NUM_THREADS": "1",
                "COLUMNS": "300",
            },
            cwd=self.home,
            capture_output=True,
            text=True,
            check=False,
        )

    def python(self, code: str, *arguments: str | Path) -> str:
        """Run Python code with this account; return what it printed."""
        done = self.run(sys.executable, "-c", code, *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every user may enter, unlike pytest's own."""
    path = Path(tempfile.mkdtemp(prefix="papa-group-", dir="/tmp"))
    path.chmod(0o711)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def users(folder: Path) -> tuple[User, User]:
    first = User(64_001, folder / "first")
    second = User(64_002, folder / "second")
    if second.run(sys.executable, "-c", "import papa, numpy").returncode:
        pytest.skip("other users may not read the environment of these tests")
    return first, second


@pytest.fixture(params=[0o2770, 0o770], ids=["setgid", "plain"])
def store(folder: Path, request: pytest.FixtureRequest) -> Path:
    """A folder that the group may write to."""
    path = folder / "store"
    path.mkdir()
    os.chown(path, 0, GROUP)
    path.chmod(request.param)
    return path


def test_one_user_reads_what_another_wrote(users: tuple[User, User], store: Path) -> None:
    first, second = users
    first.python(PUBLISH, store)
    assert float(second.python(READ, store)) == 2.0


def test_one_user_removes_what_another_wrote(users: tuple[User, User], store: Path) -> None:
    first, second = users
    first.python(PUBLISH, store)
    second.python(REMOVE, store)
    assert not list((store / "artifacts" / "probe").iterdir())


def test_one_user_takes_the_lock_that_another_made(users: tuple[User, User], store: Path) -> None:
    first, second = users
    first.python(LOCK, store)
    assert second.python(LOCK, store) == "held"


@pytest.mark.parametrize("store", [0o2770], ids=["setgid"], indirect=True)
def test_every_file_of_a_study_is_the_groups(
    users: tuple[User, User], store: Path, folder: Path
) -> None:
    first, second = users
    study = Path(write_study(folder, TINY))
    study.chmod(0o644)
    assert int(first.python(STUDY, study, store)) > 0
    written = [path for path in store.rglob("*") if path.is_file()]
    kinds = {".json", ".parquet", ".arrow", ".safetensors", ".csv", ".html", ".yaml", ".lock"}
    assert {path.suffix for path in written} >= kinds
    for path in written:
        status = path.stat()
        assert (status.st_gid, stat.S_IMODE(status.st_mode)) == (GROUP, 0o660), path
    assert int(second.python(STUDY, study, store)) == 0, "everything is cached"
    assert int(second.python(STUDY, study, store, "name=theirs", "probe_seeds=[7]")) > 0
    (theirs, ours) = json.loads(first.python(LIST, store))
    assert (theirs["name"], theirs["state"]) == ("theirs", "finished")
    assert (ours["name"], ours["state"]) == ("small", "finished")


def test_a_killed_run_of_one_user_is_not_in_the_way_of_another(
    users: tuple[User, User], store: Path
) -> None:
    first, second = users
    done = first.run(sys.executable, "-c", COMPUTE, store, "is killed")
    assert done.returncode == -signal.SIGKILL
    (left,) = (store / "scratch").iterdir()
    second.python(COMPUTE, store, "ends")
    assert [*(store / "scratch").iterdir()] == [left], "it could not remove it"
    first.python(COMPUTE, store, "ends")
    assert not [*(store / "scratch").iterdir()]


def test_users_outside_of_the_group_read_nothing(users: tuple[User, User], store: Path) -> None:
    first, second = users
    first.python(PUBLISH, store)
    outsider = User(second.number, second.home, groups=())
    done = outsider.run(sys.executable, "-c", READ, store)
    assert done.returncode != 0
    written = [path for path in store.rglob("*") if path.stat().st_mode & 0o007]
    assert not written


def test_a_private_store_is_its_owners_alone(users: tuple[User, User], folder: Path) -> None:
    first, second = users
    store = folder / "private"
    store.mkdir(mode=0o755)
    os.chown(store, first.number, GROUP)
    first.python(PUBLISH, store)
    assert second.run(sys.executable, "-c", READ, store).returncode != 0
    assert not [path for path in store.rglob("*") if path.stat().st_mode & 0o077]
