"""Ray actors that run a study's work, several at a time, and survive the loss of one.

The pool starts Ray on first use, on this machine alone and listening on the loopback interface alone. A
worker keeps the encoder it loaded last and nothing else: a killed worker is started again and repeats the
call it lost. Every worker computes with one thread, so results are the same for any number of workers.
"""

from __future__ import annotations

import heapq
import itertools
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from papa.encoders.reference import EncoderReference
from papa.errors import PapaError
from papa.progress import Progress, silent

_OBJECT_STORE_BYTES = 512 * 2**20
_POLL_SECONDS = 0.3
_GRACE_SECONDS = 0.7
"""How long a call that is not urgent holds back, so that an urgent one of the same moment goes first."""
_SOCKET_PATH_ROOM = 107 - len("/session_2026-01-01_00-00-00_000000_4194304/sockets/plasma_store")
_TEMPORARY = "papa-ray-"
_BOARD = "papa-progress"


class WorkerError(PapaError):
    """A worker was lost more often than its work is repeated."""


class Worker:
    """One process that runs calls one after the other; an actor once Ray wraps it.

    Args:
        device: "auto" takes the GPU that Ray gave it, where it gave one.
    """

    def __init__(self, device: Literal["auto", "cpu", "cuda"]) -> None:
        import ray

        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        self._device = device
        # By name: a handle among the arguments of a restarted actor might be lost.
        self._board: Any = ray.get_actor(_BOARD)
        self._encoder: Any = None
        self._digest: str | None = None

    def run(
        self,
        function: Callable[..., Any],
        encoder: EncoderReference | None,
        arguments: dict[str, Any],
        call: int,
    ) -> Any:
        """``function(**arguments, progress=…)``, with ``encoder=`` loaded where one is named."""
        import torch

        torch.set_num_threads(1)
        loaded = {"encoder": self._load(encoder)} if encoder else {}
        return function(**loaded, **arguments, progress=self._progress(call))

    def _load(self, reference: EncoderReference) -> Any:
        if self._digest != reference.digest:
            from papa.encoders.encoder import load_encoder

            self._encoder, self._digest = None, None
            self._encoder = load_encoder(reference, self._chosen_device())
            self._digest = reference.digest
        return self._encoder

    def _chosen_device(self) -> str:
        if self._device != "auto":
            return self._device
        import ray

        return "cuda" if ray.get_runtime_context().get_accelerator_ids().get("GPU") else "cpu"

    def _progress(self, call: int) -> Progress:
        last = 0.0

        def tell(done: int, total: int) -> None:
            nonlocal last
            now = time.monotonic()
            if now - last >= _POLL_SECONDS or done >= total:
                last = now
                self._board.tell.remote(call, done, total)

        return tell


class Board:
    """How far each call is; an actor once Ray wraps it."""

    def __init__(self) -> None:
        self._progress: dict[int, tuple[int, int]] = {}

    def tell(self, call: int, done: int, total: int) -> None:
        self._progress[call] = (done, total)

    def read(self, call: int) -> tuple[int, int] | None:
        return self._progress.get(call)


class WorkerPool:
    """Workers that are handed out to whoever asks, most urgent first.

    Thread-safe. Ray starts with the first call and ends with the ``with`` block.

    Args:
        workers: how many; None takes one for each GPU, or for each CPU core where there is no GPU.
        device: where encoders run.
        folder: where Ray may keep its session, if the path is short enough for its sockets.
    """

    def __init__(
        self, workers: int | None, device: Literal["auto", "cpu", "cuda"] = "auto", folder: Path | None = None
    ) -> None:
        self._asked = workers
        self._device = device
        self._folder = folder
        self._starting = threading.Lock()
        self._keeper = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ray")
        self._change = threading.Condition()
        self._free: list[Any] = []
        self._waiting: list[tuple[int, int]] = []
        self._numbers = itertools.count()
        self._ray: Any = None
        self._board: Any = None
        self._temporary: Path | None = None
        self._closed = False

    @property
    def size(self) -> int:
        """How many workers it has, or will have once it starts."""
        return self._asked or os.cpu_count() or 1

    @property
    def started(self) -> bool:
        """Whether Ray runs."""
        return self._ray is not None

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def run(
        self,
        function: Callable[..., Any],
        *,
        encoder: EncoderReference | None = None,
        arguments: dict[str, Any],
        progress: Progress = silent,
        urgency: int = 0,
    ) -> Any:
        """Call a module-level function on the next free worker and wait for its result.

        Args:
            function: takes ``arguments``, ``progress`` and, where an encoder is named, ``encoder``.
            encoder: loaded on the worker, unless it was the last one there.
            arguments: plain values, paths and specifications.
            progress: told from this thread how far the call is.
            urgency: among those who wait for a worker the highest goes first; 0 is not urgent.

        Raises:
            PapaError: as the function raised it, or a worker was lost too often.
        """
        self._start()
        ray = self._ray
        call = next(self._numbers)
        with self._worker(urgency) as worker:
            progress(0, 1)
            pending = worker.run.remote(function, encoder, arguments, call)
            try:
                while not ray.wait([pending], timeout=_POLL_SECONDS)[0]:
                    told = ray.get(self._board.read.remote(call))
                    if told is not None:
                        progress(*told)
                return ray.get(pending)
            except ray.exceptions.RayTaskError as error:
                if isinstance(error.cause, PapaError):
                    raise type(error.cause)(str(error.cause)) from None
                raise
            except ray.exceptions.RayActorError:
                raise WorkerError(
                    f"a worker was lost four times while it ran {function.__name__}: "
                    "it may lack memory, use fewer workers or lower execution.batch_tokens"
                ) from None

    def close(self) -> None:
        """End the workers and Ray, and remove Ray's session folder."""
        with self._starting:
            self._closed = True
            if self._ray is not None:
                self._keeper.submit(self._ray.shutdown).result()
                self._ray = None
            self._keeper.shutdown()
            if self._temporary is not None:
                shutil.rmtree(self._temporary, ignore_errors=True)

    @contextmanager
    def _worker(self, urgency: int) -> Iterator[Any]:
        ticket = (-urgency, next(self._numbers))
        if urgency <= 0:
            time.sleep(_GRACE_SECONDS)
        with self._change:
            heapq.heappush(self._waiting, ticket)
            self._change.wait_for(lambda: bool(self._free) and self._waiting[0] == ticket)
            heapq.heappop(self._waiting)
            worker = self._free.pop()
            self._change.notify_all()
        try:
            yield worker
        finally:
            with self._change:
                self._free.append(worker)
                self._change.notify_all()

    def _start(self) -> None:
        with self._starting:
            if self._closed:
                raise RuntimeError("the pool is closed")
            if self._ray is None:
                # Ray's processes get a signal when the thread that started them ends: one thread keeps them.
                self._ray = self._keeper.submit(self._start_ray).result()

    def _start_ray(self) -> Any:
        _prepare_environment()
        import ray

        remove_dead_sessions(_short_temporary(), *([self._folder] if self._folder else []))
        self._temporary = session_folder(self._folder)
        ray.init(
            address="local",
            num_cpus=self.size,
            _node_ip_address="127.0.0.1",
            include_dashboard=False,
            log_to_driver=False,
            logging_level="ERROR",
            object_store_memory=_OBJECT_STORE_BYTES,
            _temp_dir=str(self._temporary),
        )
        gpus = 0 if self._device == "cpu" else int(ray.cluster_resources().get("GPU", 0))
        workers = self._asked or min(gpus, self.size) or self.size
        board = ray.remote(Board).options(name=_BOARD, num_cpus=0, max_restarts=-1, max_task_retries=-1)
        self._board = board.remote()
        actor = ray.remote(Worker).options(
            num_cpus=1, num_gpus=_share(gpus, workers), max_restarts=-1, max_task_retries=3
        )
        with self._change:
            self._free = [actor.remote(self._device) for _ in range(workers)]
            self._change.notify_all()
        return ray


def session_folder(wanted: Path | None) -> Path:
    """A folder for Ray's session: under ``wanted`` where its sockets' paths fit in, else elsewhere."""
    if wanted is not None:
        folder = wanted / f"{_TEMPORARY}{os.getpid()}"
        if len(os.fsencode(folder)) <= _SOCKET_PATH_ROOM:
            folder.mkdir(parents=True, exist_ok=True)
            return folder
    return Path(tempfile.mkdtemp(prefix=f"{_TEMPORARY}{os.getpid()}-", dir=_short_temporary()))


def remove_dead_sessions(*places: Path) -> None:
    """Remove session folders that killed drivers of this user left in ``places``."""
    for folder in (found for place in places for found in place.glob(f"{_TEMPORARY}*")):
        process = folder.name.removeprefix(_TEMPORARY).partition("-")[0]
        with suppress(OSError):
            if process.isdecimal() and folder.stat().st_uid == os.getuid() and not _alive(int(process)):
                shutil.rmtree(folder, ignore_errors=True)


def _short_temporary() -> Path:
    folder = Path(tempfile.gettempdir())
    return folder if len(os.fsencode(folder)) <= _SOCKET_PATH_ROOM - 30 else Path("/tmp")


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _share(gpus: int, workers: int) -> float:
    """GPUs a worker asks for; nothing where there is none, as such a request would wait for ever."""
    if not gpus:
        return 0
    return gpus // workers if gpus >= workers else gpus / workers


def _prepare_environment() -> None:
    """Ray reads these when it is imported and when it starts its processes.

    ``_node_ip_address="127.0.0.1"`` alone is not enough: Ray turns it into the machine's outward address,
    unless it believes that clusters are switched off.
    """
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")
