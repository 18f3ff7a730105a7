"""Laws of the worker pool, on real Ray actors."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch

from papa.encoders.reference import EMBEDDED, resolve_encoder
from papa.errors import DamagedError, NumbersError
from papa.processes import Process
from papa.spec import EncoderSpec
from papa.workers import WorkerPool
from papa.workers.free_workers import FreeWorkers
from papa.workers.ray_session import ClusterError, remove_dead_sessions, session_folder
from tests.flows.processes import PATIENCE_SECONDS, descendants, wait_until
from tests.workers.parts import EXPECTED, both_ready, opened, own_process, refused, squares

SOCKET = "session_2026-01-01_00-00-00_000000_4194304/sockets/plasma_store"


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    """Workers whose start failed first and was tried anew by a thread that has ended; one that a
    test kills comes up again.
    """
    # Ray's sockets want a short path.
    with TemporaryDirectory(prefix="p", dir="/tmp") as folder:
        place = Path(folder) / "a"
        with WorkerPool(3, "cpu", place) as pool:
            place.touch()
            with pytest.raises(OSError, match="File exists"):
                pool.run(own_process, arguments={})
            place.unlink()
            first = threading.Thread(target=pool.run, args=(own_process,), kwargs={"arguments": {}})
            first.start()
            first.join()
            yield pool
        assert not list(place.iterdir())
    import ray

    assert not ray.is_initialized()


@pytest.mark.server
def test_ray_is_not_imported_before_the_first_call() -> None:
    program = (
        "import sys\nfrom papa.workers import WorkerPool\n"
        "with WorkerPool(2):\n    pass\nassert 'ray' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.server
def test_a_pool_that_ends_as_it_begins_leaves_nothing(tmp_path: Path) -> None:
    before = rays()
    with WorkerPool(1, "cpu", tmp_path) as pool:
        pool.begin()
    assert rays() <= before
    assert not list(tmp_path.iterdir())


@pytest.mark.server
@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_gpus_that_are_asked_for_and_not_there_are_missed_at_once(tmp_path: Path) -> None:
    with (
        WorkerPool(1, "cuda", tmp_path) as pool,
        pytest.raises(ClusterError, match="Ray finds no GPU here"),
    ):
        pool.run(own_process, arguments={})


def rays() -> set[int]:
    """Ray's servers below this process."""
    return {
        pid
        for pid, command in descendants(os.getpid()).items()
        if "raylet" in command or "gcs_server" in command
    }


def all_free(pool: WorkerPool) -> FreeWorkers:
    """The three workers, once each of them has answered."""
    free = pool._started()
    with free.taken(1), free.taken(1), free.taken(1):
        return free


@pytest.mark.server
def test_ray_outlives_the_thread_that_called_first(pool: WorkerPool) -> None:
    """Its processes would get a signal when the thread that started them ends."""
    processes = descendants(os.getpid())
    assert pool.run(own_process, arguments={}) in processes
    assert descendants(os.getpid()).keys() >= processes.keys()


@pytest.mark.server
def test_one_worker_is_a_group_too(pool: WorkerPool) -> None:
    with all_free(pool).taken(1, helpers=1):
        assert pool.run(own_process, arguments={}, helpers=1) > 0


@pytest.mark.server
def test_ray_starts_no_process_that_nobody_uses(pool: WorkerPool) -> None:
    pool.begin()
    commands = descendants(os.getpid()).values()
    assert any("raylet" in command for command in commands)
    unused = ("dashboard/dashboard.py", "autoscaler/_private/monitor.py", "log_monitor.py")
    assert not [command for command in commands if any(name in command for name in unused)]


@pytest.mark.server
@pytest.mark.parametrize("name", ["gcs_server", "raylet"])
def test_the_loss_of_a_process_of_rays_is_one_sentence(name: str, tmp_path: Path) -> None:
    """Where Ray's own answer is to print its log, and to end this process or to wait for ever. No
    token was written into the home folder.
    """
    program = (
        "import os\nfrom papa.workers import WorkerPool\n"
        "from papa.workers.ray_session import ClusterError\n"
        "from tests.flows.processes import descendants\n"
        "from tests.workers.parts import kill_and_wait, own_process\n"
        "with WorkerPool(1, 'cpu') as pool:\n"
        "    pool.run(own_process, arguments={})\n"
        "    commands = descendants(os.getpid()).items()\n"
        "    (pid,) = [pid for pid, command in commands if "
        f"command.split()[0].endswith('/{name}')]\n"
        "    for function, arguments in ((kill_and_wait, {'pid': pid}), (own_process, {})):\n"
        "        try:\n            pool.run(function, arguments=arguments)\n"
        "        except ClusterError as error:\n            print(error)\n"
        "assert len(os.environ['RAY_AUTH_TOKEN']) == 64\n"
    )
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        capture_output=True,
        text=True,
        env=kept | {"HOME": str(tmp_path)},
    )
    expected = (
        f"Ray's process {name} on this machine was killed, or ended: run the same command again to "
        "go on\n"
    )
    assert (done.stdout, done.stderr) == (2 * expected, "")
    assert not list(tmp_path.rglob("*token*"))


@pytest.mark.server
def test_an_error_of_the_work_arrives_as_it_was_raised(pool: WorkerPool, tmp_path: Path) -> None:
    with pytest.raises(DamagedError, match="holds no complete artifact") as raised:
        pool.run(opened, arguments={"address": str(tmp_path / "none")})
    assert raised.value.address == str(tmp_path / "none")


@pytest.mark.server
def test_an_error_that_is_no_users_names_its_kind(pool: WorkerPool) -> None:
    with pytest.raises(TypeError, match="unexpected keyword"):
        pool.run(opened, arguments={"nonsense": 1})


@pytest.mark.server
def test_the_most_urgent_waits_least(pool: WorkerPool) -> None:
    order: list[str] = []
    free = all_free(pool)
    with free.taken(1, helpers=1):
        waiting = []
        with free.taken(1):
            for name, urgency in (("late", 1), ("urgent", 3), ("later", 1)):

                def take(name: str = name, urgency: int = urgency) -> None:
                    with free.taken(urgency):
                        order.append(name)

                thread = threading.Thread(target=take)
                thread.start()
                waiting.append(thread)
                wait_until(
                    lambda: len(free._waiting) == len(waiting),
                    PATIENCE_SECONDS,
                    f"{name} waits for a worker",
                )
        for thread in waiting:
            thread.join(PATIENCE_SECONDS)
    assert order == ["urgent", "late", "later"]


@pytest.mark.server
def test_a_worker_that_comes_up_is_noticed_though_nobody_waits_for_it(pool: WorkerPool) -> None:
    """Another is free all the while, so that no call has to wait."""
    import ray

    free = pool._started()
    with free.taken(1):
        with free.taken(1) as (first,):
            with free.taken(1) as (second,):
                lost, _ = ray.get(second.actor.run.remote(own_process, None, {}, 0, None, False))
                os.kill(lost, signal.SIGKILL)
                second.lost = True
            (coming_up,) = free._coming
        ray.get(coming_up)
        with free.taken(1, helpers=1) as group:
            assert {worker.name for worker in group} == {first.name, second.name}
            assert (
                ray.get(second.actor.run.remote(own_process, None, {}, 1, None, False))[0] != lost
            )


@pytest.mark.server
def test_a_helper_shares_the_work_and_may_be_lost(pool: WorkerPool) -> None:
    encoder = resolve_encoder(EncoderSpec(name=EMBEDDED))
    both_ready(pool)
    # The worker that was used last has its encoder at hand and is handed out first: calls that
    # follow one another never see the other, however many they are.
    assert len({pool.run(own_process, arguments={}, urgency=1) for _ in range(3)}) == 1
    shared, deadly, after = pool.run(squares, encoder=encoder, arguments={}, urgency=1, helpers=1)
    for found in (shared, deadly, after):
        assert [value for value, _ in found] == EXPECTED
    assert len({process for _, process in shared}) == 2
    assert len({process for _, process in after}) == 1
    # The lost helper is started again: both workers take calls as before.
    both_ready(pool)
    with pytest.raises(NumbersError) as raised:
        pool.run(refused, encoder=encoder, arguments={}, urgency=1, helpers=1)
    assert str(raised.value) == "the loss holds NaN or infinity: use other weights", (
        "and no traceback"
    )
    again, *_ = pool.run(squares, encoder=encoder, arguments={}, urgency=1, helpers=1)
    assert len({process for _, process in again}) == 2


@pytest.mark.server
def test_more_helpers_than_are_asked_for_stay_free(pool: WorkerPool) -> None:
    """On a cluster one λ would else keep every idle worker from the next."""
    free = all_free(pool)
    with free.taken(1, helpers=1) as group, free.taken(1, helpers=5) as left:
        assert (len(group), len(left)) == (2, 1)
    with free.taken(1, helpers=5) as group:
        assert len(group) == 3


def test_session_paths_fit_into_a_socket_address(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 90)
    for wanted in (tmp_path, deep, None):
        folder = session_folder(wanted)
        assert len(str(folder / SOCKET)) <= 107
        assert folder.is_dir()
        shutil.rmtree(folder)


def session_of(place: Path, driver: Process) -> Path:
    """A session folder as ``driver`` left it."""
    folder = session_folder(place)
    (folder / "driver").write_text(str(driver))
    # A long path has it elsewhere.
    return folder.rename(place / folder.name)


def test_sessions_of_dead_drivers_are_removed_and_of_living_ones_kept(tmp_path: Path) -> None:
    """By host and start: an id is used again, and on another host it is another process's, or
    nobody's.
    """
    this = Process.this()
    dead = [
        session_of(tmp_path, process)
        for process in (Process(this.host, 4194999, 1), replace(this, started=1))
    ]
    alive = [session_of(tmp_path, process) for process in (this, Process("elsewhere", 4194999, 1))]
    other = [tmp_path / "something-else", tmp_path / "papa-ray-4194999"]
    for folder in other:
        folder.mkdir()
    remove_dead_sessions(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([*alive, *other])
    assert not any(folder.exists() for folder in dead)
