"""Ray actors that run a study's calls, several at a time, on this machine or on a cluster.

An actor keeps the model that it loaded last, and nothing else: a call whose actor is lost goes to
the next one, and another takes its place. Each computes with one thread, so results are the same
for any number of them. This file and ``ray_node.py`` are the only ones that know Ray.
"""

import logging
import math
import os
import secrets
import socket
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, suppress
from itertools import count
from pathlib import Path
from queue import Empty, LifoQueue
from typing import Any, Literal, TypeAlias

from papa.cores import WorkerCores
from papa.errors import PapaError, TransientError
from papa.models.native import ModelReference
from papa.progress import Progress, ignore_progress
from papa.ray_node import RayNode
from papa.resources import usable_cores
from papa.temporary import temporary_folder
from papa.worker import INSTALL, ClusterError, Worker, versions_here

_CLIENT = "ray://"
_START_SECONDS = 120.0
"""How long Ray may take to start on this machine: its own 30 s are too short for a busy one."""
_ANSWER_SECONDS = 5.0
_POLL_SECONDS = 1.0
_ATTEMPTS = 4


class WorkerPool(AbstractContextManager["WorkerPool"]):
    """Workers that are handed out to whoever asks. Thread-safe. Ray starts, or the cluster is
    joined, with ``begin`` or the first call; the block's end leaves it, and ends the workers.

    Args:
        workers: how many; None takes one for each GPU, or for each CPU core that this process may
            use where there is no GPU. A cluster that has too few cores for a number is given time:
            its autoscaler, if it has one, adds nodes for the workers that wait.
        shared: a file of the store that every node of a cluster must see; None for a URI.
        address: of a Ray cluster to join; None starts Ray on this machine.
    """

    def __init__(
        self,
        workers: int | None,
        device: Literal["auto", "cpu", "cuda"] = "auto",
        shared: Path | None = None,
        *,
        address: str | None = None,
    ) -> None:
        self._requested = workers
        self._device = device
        self._address = address
        self._size = workers or usable_cores()
        self._shared = shared
        self._lock = threading.Lock()
        self._driver_calls = threading.Semaphore(usable_cores())
        # Ray takes SIGTERM for itself in the main thread: another one joins it.
        self._keeper = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ray")
        self._ray: Any = None
        self._began: Future[None] | None = None
        self._node: RayNode | None = None
        # On a cluster nothing says which workers share a machine: each keeps to its own core.
        self._cores_folder: Path | None = None
        self._numbers = count()
        self._stack = ExitStack()
        self._idle: LifoQueue[Any] = LifoQueue()
        self._actors: set[Any] = set()
        self._refusal: PapaError | None = None
        self.closed = False
        self.shortage = ""

    @property
    def size(self) -> int:
        """How many workers it has."""
        self.begin().result()
        return self._size

    def begin(self) -> Future[None]:
        """Start Ray, or join the cluster, so that workers come up meanwhile."""
        # One at a time: imports in two threads find each other's modules half made.
        with self._lock:
            if self._began is None or (self._began.done() and self._ray is None):
                self._began = self._keeper.submit(self._start)
            return self._began

    def run(
        self,
        function: Callable[..., Any],
        *,
        arguments: Mapping[str, Any],
        model: ModelReference | None = None,
        progress: Progress = ignore_progress,
        on_drivers_machine: bool = False,
    ) -> Any:
        """Call a function; see ``Worker.run``."""
        if on_drivers_machine and (self._address or self._ray is None):
            with self._driver_calls:
                return function(**arguments, progress=progress)
        self.begin().result()
        errors = self._ray.exceptions
        for _ in range(_ATTEMPTS):
            actor = self._next()
            progress(0, 1)
            try:
                pending = actor.run.remote(function, arguments=arguments, model=model)
                while not self._ray.wait([pending], timeout=_POLL_SECONDS)[0]:
                    self._check_node()
                result = self._ray.get(pending)
            except errors.RayActorError:
                self._actors.discard(actor)
                self._hire()
                continue
            except errors.RayTaskError as error:
                self._idle.put(actor)
                raise (error.cause if isinstance(error.cause, PapaError) else error) from None
            self._idle.put(actor)
            return result
        raise TransientError(
            "a worker was lost four times while it ran this step: "
            "it may lack memory: use fewer workers, or lower slots or execution.batch_tokens"
        )

    def __exit__(self, *error: object) -> None:
        self.closed = True
        with self._lock:
            self._keeper.submit(lambda: self._ray and self._ray.shutdown()).result()
        self._keeper.shutdown()
        self._stack.close()

    def abandon(self) -> None:
        """End what it has on a cluster at once; what it has on this machine ends with it."""
        if self._address and self._ray is not None:
            for actor in self._actors:
                self._ray.kill(actor)
            self._ray.shutdown()

    def _start(self) -> None:
        ray = _join_cluster(self._address) if self._address else self._start_here()
        resources = ray.cluster_resources()
        cpus = int(resources.get("CPU", 0))
        gpus = 0 if self._device == "cpu" else int(resources.get("GPU", 0))
        self._size = self._requested or min(gpus, cpus) or cpus
        lacks_gpu = self._device == "cuda" and not gpus
        may_grow = self._address is not None and self._requested is not None
        if not self._size or ((self._size > cpus or lacks_gpu) and not may_grow):
            ray.shutdown()
            grow = ", or give --workers a number for its autoscaler" if self._address else ""
            raise ClusterError(
                f"Ray finds {cpus} CPUs and {gpus} GPUs at {self._address or 'this machine'} for "
                f"{self._size} workers (device {self._device}): add nodes, or ask for fewer "
                f"--workers or another execution.device{grow}"
            )
        if self._size > cpus or lacks_gpu:
            self.shortage = (
                f"the Ray cluster at {self._address} has {cpus} CPUs and {gpus} GPUs now for "
                f"{self._size} workers (device {self._device}): the others wait for nodes"
            )
        # Nothing without any GPU, as such a request would wait for ever; nodes that an autoscaler
        # adds for device cuda have one.
        self._share = 1 / math.ceil(self._size / gpus) if gpus else float(lacks_gpu)
        self._ray = ray
        for _ in range(self._size):
            self._hire()

    def _start_here(self) -> Any:
        """Start Ray on this machine, and join it; return Ray's module."""
        # Else Ray would turn the address into the machine's outward one.
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
        os.environ.setdefault("RAY_AUTH_MODE", "token")
        if "RAY_AUTH_TOKEN_PATH" not in os.environ:
            # Else Ray writes one into the home folder, for all sessions.
            os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
        # Ray gives everybody the right to write to its folder, but nobody else may enter this one.
        folder = self._stack.enter_context(temporary_folder("ray"))
        self._cores_folder = folder / "cores"
        self._cores_folder.mkdir(mode=0o700)
        try:
            return self._join_node(folder / "1")
        except ClusterError:
            return self._join_node(folder / "2")

    def _join_node(self, folder: Path) -> Any:
        node = RayNode(folder, self._size, _START_SECONDS)
        try:
            ray = _init(node.address, log_to_driver=False, logging_level=logging.CRITICAL)
        except Exception as error:
            raise node.refuse(error) from None
        node.joined()
        self._stack.callback(node.end)
        self._node = node
        return ray

    def _check_node(self) -> None:
        if self._node:
            self._node.check()

    def _hire(self) -> None:
        """Start another worker, which is idle once it answers, if it ever does."""
        worker = self._ray.remote(Worker).options(num_cpus=1, num_gpus=self._share)
        versions = versions_here() if self._address else None
        cores = None
        if self._cores_folder is not None and not self._share:
            cores = WorkerCores(self._cores_folder, next(self._numbers), self._size)
        device = "cuda" if self._share else "cpu"
        actor = worker.remote(device, versions=versions, cores=cores)
        self._actors.add(actor)

        def answered(answer: Future[None]) -> None:
            error = answer.exception()
            if error is None:
                self._idle.put(actor)
            elif not self.closed:
                cause = getattr(error, "cause", None) or error
                why = str(cause).strip().splitlines()[-1]
                refused = ClusterError(f"a worker cannot start ({why}): {INSTALL}")
                self._refusal = cause if isinstance(cause, PapaError) else refused

        actor.ready.remote(self._shared).future().add_done_callback(answered)

    def _next(self) -> Any:
        """Return the next idle worker, of which the one used last has its model at hand."""
        while self._refusal is None:
            self._check_node()
            with suppress(Empty):
                return self._idle.get(timeout=_POLL_SECONDS)
        raise self._refusal


Executor: TypeAlias = Worker | WorkerPool
"""What runs functions of a study. It is ``closed`` once its block has ended; ``shortage`` is what a
cluster lacks for all workers, "" for nothing.
"""


def _join_cluster(address: str) -> Any:
    """Join a cluster that answers; return Ray's module."""
    check_answers(address)
    host = address.removeprefix(_CLIENT).rpartition(":")[0].strip("[]")
    if host in ("localhost", "127.0.0.1", "::1"):
        # Else Ray would look for this machine's outward address, where its node may not listen.
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    # Ray's own patience with a wrong token is 20 and 30 seconds.
    os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "8")
    os.environ.setdefault("RAY_CLIENT_INITIAL_CONNECTION_TIMEOUT_S", "2")
    try:
        return _init(address, log_to_driver=True, logging_level=logging.ERROR)
    except Exception as error:
        raise ClusterError(
            f"the Ray cluster at {address} answers but refuses ({' '.join(str(error).split())}): "
            "check RAY_AUTH_MODE=token and RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH, that versions "
            f"fit, and that this machine is a node (else use {_CLIENT}host:10001)"
        ) from None


def check_answers(address: str) -> None:
    """Raise a ClusterError unless something answers at the address of a cluster."""
    source = "RAY_ADDRESS" if address == os.environ.get("RAY_ADDRESS") else "--ray-address"
    host, _, port = address.removeprefix(_CLIENT).rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _ANSWER_SECONDS).close()
    except (OSError, ValueError) as error:
        raise ClusterError(
            f"no Ray cluster answers at {address} ({error}), which {source} names: give host:port "
            f"on one of its nodes, {_CLIENT}host:10001, or no {source} to use this machine"
        ) from None


def _init(address: str, *, log_to_driver: bool, logging_level: int) -> Any:
    """Join the Ray at an address; return Ray's module."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    # Else Ray has workers run by `uv run`, in an environment of their own, where this process was.
    os.environ["RAY_ENABLE_UV_RUN_RUNTIME_ENV"] = "0"
    import ray

    job: Any = None
    if not address.startswith(_CLIENT):
        # Workers import nothing from the folder that this process was started in, where a study
        # may lie beside a ``numpy.py``: Ray puts it first on their path, but not a client's.
        job = ray.job_config.JobConfig(_client_job=True)
    try:
        ray.init(address, job_config=job, log_to_driver=log_to_driver, logging_level=logging_level)
    except Exception:
        ray.shutdown()
        raise
    return ray
