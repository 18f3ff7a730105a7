"""The pool of workers: Ray actors that run a study's work, several at a time, and survive the loss
of one.

Ray starts, or the cluster is joined, with ``begin`` or the first call. A worker that is lost is
started again by Ray, and the call it lost is repeated on the next free one.
"""

from __future__ import annotations

import itertools
import math
import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from pathlib import Path
from typing import Any, Literal

from papa.encoders.reference import EncoderReference
from papa.errors import PapaError
from papa.progress import OnEpoch, Progress, ignore_progress
from papa.workers import ray_session
from papa.workers.free_workers import FreeWorkers, WorkerHandle
from papa.workers.worker import (
    PROGRESS_BOARD,
    PROGRESS_SECONDS,
    BoardReader,
    Epochs,
    Machine,
    ProgressBoard,
    Worker,
    WorkerError,
)

_GRACE_SECONDS = 0.3
"""How long a call that is not urgent holds back, so that an urgent one goes first."""
_ATTEMPTS = 4


class WorkerPool:
    """Workers that are handed out to whoever asks, most urgent first. Thread-safe.

    Args:
        workers: how many; None takes one for each GPU, or for each CPU core where there is no GPU.
        folder: on this machine; Ray may keep its session there.
        address: of a Ray cluster to join; None starts Ray on this machine.
        shared: whether every node of the cluster must see the folder.
    """

    def __init__(
        self,
        workers: int | None,
        device: Literal["auto", "cpu", "cuda"] = "auto",
        folder: Path | None = None,
        *,
        address: str | None = None,
        shared: bool = True,
    ) -> None:
        self._asked = workers
        self._device = device
        self._folder = folder
        self._address = address
        self._shared = shared
        self._starting = threading.Lock()
        self._keeper = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ray")
        self._at_driver = threading.Semaphore(os.cpu_count() or 1)
        self._calls = itertools.count()
        self._ray: Any = None
        self._board: BoardReader
        self._actors: list[Any] = []
        self._beginning: Future[FreeWorkers] | None = None
        self._size = workers or os.cpu_count() or 1
        self._gpus = 0
        self._temporary: Path | None = None
        self._marker: Path | None = None
        self.closed = False

    @property
    def size(self) -> int:
        """How many workers it has; a cluster is asked for it."""
        if self._address and not self._asked:
            self._started()
        return self._size

    @property
    def on_gpu(self) -> bool:
        """Whether workers have GPUs; Ray is asked for it."""
        self._started()
        return self._gpus > 0

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def begin(self) -> None:
        """Start Ray, or join the cluster, so that workers come up meanwhile; the first call says
        what went wrong.

        Where that failed, Ray's own 30 seconds on a busy machine say, it is tried anew.
        """
        with self._starting:
            if self.closed:
                raise RuntimeError("the pool is closed")
            if self._beginning is None or (self._beginning.done() and self._beginning.exception()):
                # Ray's processes get a signal when the thread that started them ends: one thread
                # keeps them.
                self._beginning = self._keeper.submit(self._start)
        # Awaited: imports in two threads at once find each other's modules half made.
        wait([self._beginning])

    def run(
        self,
        function: Callable[..., Any],
        *,
        encoder: EncoderReference | None = None,
        arguments: dict[str, Any],
        progress: Progress = ignore_progress,
        urgency: int = 0,
        helpers: int = 0,
        at_driver: bool = False,
        on_epoch: OnEpoch | None = None,
    ) -> Any:
        """Call a module-level function on the next free worker and wait for its result.

        Args:
            function: takes ``arguments``, ``progress`` and, where they are asked for, ``encoder``,
                ``group`` and ``on_epoch``.
            progress, on_epoch: called from this thread.
            urgency: among those who wait for a worker the highest goes first; 0 is not urgent.
            helpers: of the workers that are idle when the call begins, so many help at most.
            at_driver: what the function reads lies on this machine alone: on a cluster it runs
                here, and where no worker was started yet.
        """
        if at_driver and (self._address or self._beginning is None):
            with self._at_driver:
                return function(**arguments, progress=progress)
        free = self._started()
        if urgency <= 0:
            time.sleep(_GRACE_SECONDS)
        for _ in range(_ATTEMPTS):
            with free.taken(urgency, helpers) as (worker, *others):
                try:
                    chosen = others if helpers else None
                    return self._call(
                        worker, chosen, function, encoder, arguments, progress, on_epoch
                    )
                except self._ray.exceptions.RayActorError:
                    worker.lost = True
        raise WorkerError(
            "a worker was lost four times while it ran this step: "
            "it may lack memory, use fewer workers or lower execution.batch_tokens"
        )

    def each(self, function: Callable[[Any], object], values: Iterable[Any]) -> Iterator[None]:
        """Call a function of each value in threads of this process, as many as there are workers.

        Yields after each that is done; after an error no further one is begun.
        """
        with ThreadPoolExecutor(max_workers=self.size) as executor:
            try:
                for future in as_completed([executor.submit(function, value) for value in values]):
                    future.result()
                    yield
            except BaseException:
                executor.shutdown(wait=False, cancel_futures=True)
                raise

    def close(self) -> None:
        """End the workers and Ray, or leave the cluster, and remove what was needed for it."""
        with self._starting:
            self.closed = True
            if self._beginning is not None:
                wait([self._beginning])
            if self._ray is not None:
                self._keeper.submit(self._ray.shutdown).result()
                self._ray = None
            self._keeper.shutdown()
            self.remove_session()

    def abandon(self) -> None:
        """End what it has on a cluster at once, whatever its workers compute; this process ends
        next.

        A session on this machine ends with the processes below this one.
        """
        if self._address and self._ray is not None:
            for actor in self._actors:
                self._ray.kill(actor)
            self._ray.shutdown()

    def remove_session(self) -> None:
        """Remove the files of a session that has ended."""
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
        if self._marker is not None:
            self._marker.unlink(missing_ok=True)

    def _call(
        self,
        worker: WorkerHandle,
        helpers: list[WorkerHandle] | None,
        function: Callable[..., Any],
        encoder: EncoderReference | None,
        arguments: dict[str, Any],
        progress: Progress,
        on_epoch: OnEpoch | None,
    ) -> Any:
        ray, call = self._ray, next(self._calls)
        names = None if helpers is None else [helper.name for helper in helpers]
        progress(0, 1)
        pending = worker.actor.run.remote(
            function, encoder, arguments, call, names, on_epoch is not None
        )
        heard: Epochs = []
        try:
            with self._board.following(call) as how_far:
                while not ray.wait([pending], timeout=PROGRESS_SECONDS)[0]:
                    ray_session.check()
                    done, total, epochs = how_far()
                    progress(done, total)
                    _hear(on_epoch, epochs, heard)
            result, epochs = ray.get(pending)
            _hear(on_epoch, epochs, heard)
            return result
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, PapaError):
                raise error.cause from None
            raise

    def _started(self) -> FreeWorkers:
        self.begin()
        assert self._beginning is not None
        return self._beginning.result()

    def _start(self) -> FreeWorkers:
        if self._address:
            ray, machine = ray_session.join(self._address), self._machine()
        else:
            (ray, self._temporary), machine = ray_session.start(self._size, self._folder), Machine()
        self._ray = ray
        resources = ray.cluster_resources()
        gpus = self._gpus = 0 if self._device == "cpu" else int(resources.get("GPU", 0))
        if self._device == "cuda" and not gpus:
            raise ray_session.ClusterError(
                "execution.device is cuda, and Ray finds no GPU "
                f"{f'at {self._address}' if self._address else 'here'}: add a node with one, or "
                "set cpu or auto"
            )
        most = int(resources.get("CPU", 0)) if self._address else self._size
        self._size = self._asked or min(gpus, most) or most
        if not 0 < self._size <= most:
            raise ray_session.ClusterError(
                f"the Ray cluster at {self._address} has {most} CPUs for {self._size or 'any'} "
                "workers: give at most as many --workers, or add nodes"
            )
        actor = ray.remote(Worker)
        # Nothing without any GPU, as such a request would wait for ever.
        share = 1 / math.ceil(self._size / gpus) if gpus else 0
        names = [f"papa-worker-{number}" for number in range(self._size)]
        workers = [
            actor.options(name=name, num_cpus=1, num_gpus=share, max_restarts=-1).remote(
                self._device, machine
            )
            for name in names
        ]
        # After them: Ray starts one process after the other on each core, and theirs take longest.
        board = ray.remote(ProgressBoard).options(
            name=PROGRESS_BOARD, num_cpus=0, max_restarts=-1, max_task_retries=-1
        )
        keeper = board.remote()
        self._board = BoardReader(ray, keeper)
        self._actors = [keeper, *workers]
        return FreeWorkers(
            ray, [WorkerHandle(name, worker) for name, worker in zip(names, workers, strict=True)]
        )

    def _machine(self) -> Machine:
        if self._shared and self._folder is not None:
            self._marker = self._folder / f".driver.{uuid.uuid4().hex}"
            self._marker.touch()
        return Machine.of_driver(self._marker)


def _hear(on_epoch: OnEpoch | None, epochs: Epochs, heard: Epochs) -> None:
    """Hand on the epochs that were not heard of yet."""
    for epoch in epochs:
        if on_epoch and epoch not in heard:
            heard.append(epoch)
            on_epoch(*epoch)
