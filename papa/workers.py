"""Ray actors that run a study's calls, several at a time, on this machine or on a cluster.

An actor keeps the encoder that it loaded last, and nothing else: a call whose actor is lost goes to
the next one, and another takes its place. Each computes with one thread, so results are the same
for any number of them. This is the only file that knows Ray.
"""

from __future__ import annotations

import logging
import math
import os
import secrets
import shutil
import socket
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from queue import Empty, LifoQueue
from typing import Any, Literal

from papa.encoders.reference import EncoderReference, resolve_encoder
from papa.errors import EncoderError, HubUnreachableError, PapaError, TransientError
from papa.imports import uncollected
from papa.progress import EpochEnded, Progress, ignore_progress
from papa.spec import EncoderSpec

_LIBRARIES = ("papa-attention", "torch", "transformers", "numpy")
_CLIENT = "ray://"
OBJECT_STORE_BYTES = 512 * 2**20
_ANSWER_SECONDS = 5.0
_POLL_SECONDS = 1.0
_PATIENCE_SECONDS = 1800.0
"""A cluster may have to bring up machines first, or another study may hold them."""
_ATTEMPTS = 4


class WorkerError(TransientError):
    """No worker answers, or one was lost more often than its work is repeated."""


class ClusterError(PapaError):
    """Ray cannot be reached, refuses or has ended, or one of its machines does not fit."""


class WorkerPool:
    """Workers that are handed out to whoever asks. Thread-safe.

    Ray starts, or the cluster is joined, with ``begin`` or the first call.

    Args:
        workers: how many; None takes one for each GPU, or for each CPU core where there is no GPU.
        folder: of the store; every node of a cluster must see it, if ``shared``.
        address: of a Ray cluster to join; None starts Ray on this machine.
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
        self._asked, self._device, self._address = workers, device, address
        self._folder = folder if shared and address else None
        self._size = workers or os.cpu_count() or 1
        self._share = 0.0
        self._starting = threading.Lock()
        self._at_driver = threading.Semaphore(os.cpu_count() or 1)
        # Ray's processes get a signal when the thread that started them ends: one keeps them.
        self._keeper = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ray")
        self._beginning: Future[Any] | None = None
        self._ray: Any = None
        self._idle: LifoQueue[Any] = LifoQueue()
        self._actors: set[Any] = set()
        self._up: set[Any] = set()
        self._refusal: Exception | None = None
        self._temporary: str | None = None
        self._marker: Path | None = None
        self.closed = False

    @property
    def size(self) -> int:
        """How many workers it has; a cluster is asked for it."""
        if self._address and not self._asked:
            self._started()
        return self._size

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def begin(self) -> None:
        """Start Ray, or join the cluster, so that workers come up meanwhile; the first call says
        what went wrong, and where Ray did not start it is tried anew.
        """
        with self._starting:
            if self.closed:
                raise RuntimeError("the pool is closed")
            if self._beginning is None or (self._beginning.done() and self._beginning.exception()):
                self._beginning = self._keeper.submit(self._start)
        # Awaited: imports in two threads at once find each other's modules half made.
        wait([self._beginning])

    def run(
        self,
        function: Callable[..., Any],
        *,
        arguments: Mapping[str, Any],
        encoder: EncoderReference | None = None,
        progress: Progress = ignore_progress,
        at_driver: bool = False,
        on_epoch: EpochEnded | None = None,
    ) -> Any:
        """Call a module-level function on the next idle worker and wait for its result.

        Args:
            function: takes ``arguments``, ``progress`` and, where they are given, ``encoder`` and
                ``on_epoch``.
            progress: called when the call begins and when it ended.
            on_epoch: told of every epoch once the call has ended.
            at_driver: what the function reads lies on this machine alone: on a cluster it runs
                here, and where no worker was started yet.
        """
        if at_driver and (self._address or self._beginning is None):
            with self._at_driver:
                return function(**arguments, progress=progress)
        ray = self._started()
        for _ in range(_ATTEMPTS):
            actor = self._next()
            progress(0, 1)
            try:
                pending = actor.run.remote(function, encoder, arguments, on_epoch is not None)
                while not ray.wait([pending], timeout=_POLL_SECONDS)[0]:
                    check_ray()
                result, epochs = ray.get(pending)
            except ray.exceptions.RayActorError:
                self._actors.discard(actor)
                self._up.discard(actor)
                self._hire()
                continue
            except ray.exceptions.RayTaskError as error:
                self._idle.put(actor)
                if isinstance(error.cause, PapaError):
                    raise error.cause from None
                raise
            self._idle.put(actor)
            for epoch in epochs:
                if on_epoch:
                    on_epoch(*epoch)
            progress(1, 1)
            return result
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
        next, and with it what it started on this machine.
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

    def _started(self) -> Any:
        self.begin()
        assert self._beginning is not None
        return self._beginning.result()

    def _start(self) -> Any:
        if self._address:
            ray, where = _join(self._address), f"at {self._address}"
        else:
            self._temporary = tempfile.mkdtemp(prefix="papa-ray-", dir=_short_temporary())
            ray, where = _start_here(self._size, self._temporary), "here"
        self._ray, resources = ray, ray.cluster_resources()
        gpus = 0 if self._device == "cpu" else int(resources.get("GPU", 0))
        if self._device == "cuda" and not gpus:
            raise ClusterError(
                f"execution.device is cuda, and Ray finds no GPU {where}: add a node with one, or "
                "set cpu or auto"
            )
        most = int(resources.get("CPU", 0)) if self._address else self._size
        self._size = self._asked or min(gpus, most) or most
        if not 0 < self._size <= most:
            raise ClusterError(
                f"the Ray cluster {where} has {most} CPUs for {self._size or 'any'} workers: give "
                "at most as many --workers, or add nodes"
            )
        # Nothing without any GPU, as such a request would wait for ever.
        self._share = 1 / math.ceil(self._size / gpus) if gpus else 0
        if self._folder is not None:
            self._marker = self._folder / f".driver.{uuid.uuid4().hex}"
            self._marker.touch()
        for _ in range(self._size):
            self._hire()
        return ray

    def _new(self) -> Any:
        elsewhere = _versions() if self._address else None
        options = {"num_cpus": 1, "num_gpus": self._share}
        worker = self._ray.remote(Worker).options(**options)
        return worker.remote(self._device, elsewhere, self._marker)

    def _hire(self) -> None:
        """Have another worker come up, which is idle once it answers: on a cluster that lost a node
        that may take for ever.
        """
        actor = self._new()
        self._actors.add(actor)

        def expect() -> None:
            try:
                self._ray.get(actor.ready.remote(), timeout=_PATIENCE_SECONDS)
            except Exception as error:
                self._refuse(error)
            else:
                self._up.add(actor)
                self._idle.put(actor)

        threading.Thread(target=expect, daemon=True).start()

    def _refuse(self, error: Exception) -> None:
        """A worker did not come up; the first such error ends the calls that wait for one."""
        errors = self._ray and self._ray.exceptions
        if not errors or self._refusal:
            return  # The pool is closed, or said so.
        if isinstance(error, errors.GetTimeoutError):
            if not self._up:
                self._refusal = WorkerError(
                    f"no worker answered for {_PATIENCE_SECONDS / 60:.0f} minutes: check that the "
                    "Ray cluster has free CPUs or GPUs, and run the same command again to go on"
                )
        elif isinstance(error, errors.RayTaskError) and isinstance(error.cause, PapaError):
            self._refusal = error.cause
        else:
            why = str(error).strip().splitlines()[-1]
            self._refusal = ClusterError(
                f"a worker cannot start ({why}): install PAPA on every node of the cluster"
            )

    def _next(self) -> Any:
        """The next idle worker, of which the one used last has its encoder at hand."""
        while True:
            if self._refusal is not None:
                raise self._refusal
            check_ray()
            with suppress(Empty):
                return self._idle.get(timeout=_POLL_SECONDS)


class Worker:
    """One process that runs calls one after the other; an actor once Ray wraps it.

    Args:
        device: "auto" takes the GPU that Ray gave it, where it gave one.
        versions: of the driver's libraries, where this may be another machine; else None.
        shared: a file that every machine must see.
    """

    def __init__(
        self,
        device: Literal["auto", "cpu", "cuda"],
        versions: Mapping[str, str] | None,
        shared: Path | None,
    ) -> None:
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
        with uncollected():
            # What every call needs, while the driver is still busy with its own start.
            import papa.encoders.encoder
            import papa.probes.evaluate  # noqa: F401
        self._device, self._elsewhere = device, versions is not None
        self._refusal = _misfit(versions or {}, shared)
        self._encoder: Any = None
        self._loaded: EncoderReference | None = None

    def ready(self) -> None:
        """Nothing, as soon as the worker can take a call; ClusterError where it never can."""
        if self._refusal:
            raise ClusterError(self._refusal)

    def run(
        self,
        function: Callable[..., Any],
        encoder: EncoderReference | None,
        arguments: Mapping[str, Any],
        epochs: bool,
    ) -> tuple[Any, list[tuple[int, Mapping[int, float], float]]]:
        """What a function returns, and each of its epochs: number, losses of each seed, and when it
        ended.
        """
        import torch

        torch.set_num_threads(1)
        given: dict[str, Any] = {} if encoder is None else {"encoder": self._load(encoder)}
        ended: list[tuple[int, Mapping[int, float], float]] = []
        if epochs:
            given["on_epoch"] = lambda epoch, losses: ended.append((epoch, losses, time.time()))
        result = function(**given, **arguments, progress=ignore_progress)
        if encoder is not None:
            self._encoder.check_unchanged()
        return result, ended

    def _load(self, reference: EncoderReference) -> Any:
        if self._loaded != reference:
            from papa.encoders.encoder import load_encoder

            self._encoder, self._loaded = None, None
            here = encoder_here(reference) if self._elsewhere else reference
            self._encoder = load_encoder(here, self._chosen_device())
            self._loaded = reference
        return self._encoder

    def _chosen_device(self) -> str:
        if self._device != "auto":
            return self._device
        import ray

        return "cuda" if ray.get_runtime_context().get_accelerator_ids().get("GPU") else "cpu"


def _versions() -> dict[str, str]:
    """Of the libraries that results depend on, without build labels such as ``+cu126``."""
    versions = dict.fromkeys(_LIBRARIES, "none")
    for name in _LIBRARIES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name).partition("+")[0]
    return versions


def _misfit(versions: Mapping[str, str], shared: Path | None) -> str:
    """What keeps this machine from working for a driver, in a sentence; "" where nothing does."""
    found = _versions()
    for name, wanted in versions.items():
        if found[name] != wanted:
            return (
                f"node {socket.gethostname()} has {name} {found[name]}, the driver has {wanted}: "
                "install the same version on every node"
            )
    if shared is not None and not shared.is_file():
        return (
            f"node {socket.gethostname()} does not see {shared.parent} of the store: use a store "
            "that all nodes reach, such as --store s3://bucket/papa, or a shared folder"
        )
    return ""


def encoder_here(reference: EncoderReference) -> EncoderReference:
    """The same encoder by its files on this machine of a cluster."""
    node = f"node {socket.gethostname()}"
    try:
        found = resolve_encoder(EncoderSpec(name=reference.name, revision=reference.revision))
    except (EncoderError, HubUnreachableError) as error:
        raise EncoderError(f"{node} lacks the encoder: {error}") from None
    if found.digest != reference.digest:
        raise EncoderError(
            f"{node} has another '{reference.name}' in {found.folder} (expected digest "
            f"{reference.digest[:12]}, found {found.digest[:12]}): put the same files on every node"
        )
    return replace(reference, folder=found.folder)


def _start_here(cores: int, temporary: str) -> Any:
    """Start Ray on loopback; returns the module."""
    # Read when Ray is imported and when it starts its processes. Without the first it would turn
    # the address into the machine's outward one.
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    if "RAY_AUTH_TOKEN_PATH" not in os.environ:
        # Else Ray writes one into the home folder, for all sessions.
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    ray = _imported()
    try:
        ray.init(
            address="local",
            num_cpus=cores,
            _node_ip_address="127.0.0.1",
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.CRITICAL,
            object_store_memory=OBJECT_STORE_BYTES,
            _temp_dir=temporary,
            job_config=_job(ray),
        )
    except Exception:
        ray.shutdown()
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return ray


def _join(address: str) -> Any:
    """Connect this process to a cluster, by ``host:port`` of the head where this machine is a node,
    or ``ray://host:port`` from anywhere; returns Ray's module.
    """
    reach(address)
    # Ray's own patience with a wrong token is 20 and 30 seconds.
    os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "8")
    os.environ.setdefault("RAY_CLIENT_INITIAL_CONNECTION_TIMEOUT_S", "2")
    ray = _imported()
    job = {} if address.startswith(_CLIENT) else {"job_config": _job(ray)}
    try:
        ray.init(address=address, log_to_driver=True, logging_level=logging.ERROR, **job)
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise ClusterError(
            f"the Ray cluster at {address} answers but refuses ({' '.join(str(error).split())}): "
            "check RAY_AUTH_MODE=token and RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH, that versions "
            f"fit, and that this machine is a node (else use {_CLIENT}host:10001)"
        ) from None
    return ray


def reach(address: str) -> None:
    """Make sure that somebody listens at the address of a cluster."""
    host, _, port = address.removeprefix(_CLIENT).rpartition(":")
    if not host or not port.isdecimal():
        raise ClusterError(
            f"'{address}' is no address of a Ray cluster: give host:port on one of its nodes, or "
            f"{_CLIENT}host:10001"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), _ANSWER_SECONDS).close()
    except OSError as error:
        raise ClusterError(
            f"no Ray cluster answers at {address} ({error.strerror or error}): check the address "
            "and that the head runs, or leave --ray-address out to use this machine"
        ) from None


def _imported() -> Any:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    import ray

    return ray


def _job(ray: Any) -> Any:
    """Workers import nothing from the folder that this process was started in, where a study may
    lie beside a ``numpy.py``: Ray would put it first on their path, unless it takes a job for one
    of its clients'.
    """
    return ray.job_config.JobConfig(_client_job=True)


def check_ray() -> None:
    """Make sure that the processes that ``ray.init`` started run: without them no call is answered
    any more, and Ray itself would wait for a minute and then end this process, or for ever.
    """
    from ray._private import worker

    node = getattr(worker, "_global_node", None)
    lost: list[str] = [name for name, _ in node.dead_processes()] if node else []
    if lost:
        raise ClusterError(
            f"Ray's process {lost[0]} on this machine was killed, or ended: run the same command "
            "again to go on"
        )


def _short_temporary() -> str:
    """Where the paths of Ray's sockets are short enough."""
    folder = tempfile.gettempdir()
    return folder if len(os.fsencode(folder)) <= 20 else "/tmp"
