"""One worker: a process that runs calls in turn and keeps the encoder it loaded last; and what its
machine must share with the driver's: libraries, and the encoder's files.
"""

from __future__ import annotations

import math
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

from papa.encoders.reference import EncoderReference, resolve_encoder
from papa.errors import EncoderError, HubUnreachableError, PapaError, TransientError
from papa.imports import uncollected
from papa.progress import Progress
from papa.spec import EncoderSpec
from papa.workers.group import NoReplica, WorkerGroup

_LIBRARIES = ("papa-attention", "torch", "transformers", "numpy")


class MachineError(PapaError):
    """A machine of the cluster does not fit the driver's."""


@dataclass(frozen=True)
class Machine:
    """What of the driver's machine those of its workers must share.

    Attributes:
        versions: of the libraries that results depend on, without build labels such as ``+cu126``.
        shared: a file that every machine must see; None where the store is no folder.
        elsewhere: whether workers may be on other machines.
    """

    versions: tuple[tuple[str, str], ...] = ()
    shared: str | None = None
    elsewhere: bool = False

    @classmethod
    def of_driver(cls, shared: Path | None) -> Machine:
        """The machine of a driver whose workers are on a cluster."""
        return cls(tuple(_versions().items()), str(shared) if shared else None, elsewhere=True)

    def check(self) -> None:
        """Compare with the machine that this runs on."""
        if not self.elsewhere:
            return
        found = _versions()
        for name, wanted in self.versions:
            if found[name] != wanted:
                raise MachineError(
                    f"node {_node()} has {name} {found[name]}, the driver has {wanted}: "
                    "install the same version on every node"
                )
        if self.shared is not None and not Path(self.shared).is_file():
            raise MachineError(
                f"node {_node()} does not see {Path(self.shared).parent} of the store: use a store "
                "that all nodes reach, such as --store s3://bucket/papa, or a shared folder"
            )

    def encoder(self, reference: EncoderReference) -> EncoderReference:
        """The same encoder by its files on this machine."""
        if not self.elsewhere:
            return reference
        try:
            found = resolve_encoder(EncoderSpec(name=reference.name, revision=reference.revision))
        except (EncoderError, HubUnreachableError) as error:
            raise EncoderError(f"node {_node()} lacks the encoder: {error}") from None
        if found.digest != reference.digest:
            raise EncoderError(
                f"node {_node()} has another '{reference.name}' in {found.folder} (expected digest "
                f"{reference.digest[:12]}, found {found.digest[:12]}): put the same files on every "
                "node"
            )
        return replace(reference, folder=found.folder)


def _versions() -> dict[str, str]:
    """Versions by library; "none" where one is not installed."""
    versions = {}
    for name in _LIBRARIES:
        try:
            versions[name] = version(name).partition("+")[0]
        except PackageNotFoundError:
            versions[name] = "none"
    return versions


def _node() -> str:
    import ray

    return str(ray.util.get_node_ip_address()) if ray.is_initialized() else socket.gethostname()


PROGRESS_BOARD = "papa-progress"
PROGRESS_SECONDS = 0.3
Epochs = list[tuple[int, Mapping[int, float]]]
"""Epochs and their losses, as ``papa.progress.OnEpoch`` is called with."""


class WorkerError(TransientError):
    """A worker was lost more often than its work is repeated."""


class Worker:
    """One process that runs calls one after the other; an actor once Ray wraps it.

    It computes with one thread, so results are the same for any number of workers.

    Args:
        device: "auto" takes the GPU that Ray gave it, where it gave one.
        driver: what its machine must have in common with the driver's.
    """

    def __init__(self, device: Literal["auto", "cpu", "cuda"], driver: Machine) -> None:
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
        with uncollected():
            # What every call needs, while the driver is still busy with its own start.
            import papa.encoders.encoder
            import papa.probes.evaluate  # noqa: F401
        self._device = device
        self._driver = driver
        self._board: Any = None
        self._encoder: Any = None
        self._loaded: EncoderReference | None = None
        self._replica: Any = None

    def ready(self) -> None:
        """Nothing, as soon as the worker can take a call."""
        self._driver.check()

    def run(
        self,
        function: Callable[..., Any],
        encoder: EncoderReference | None,
        arguments: dict[str, Any],
        call: int,
        helpers: Sequence[str] | None,
        epochs: bool,
    ) -> tuple[Any, Epochs]:
        """``function(**arguments, progress=…)``; with ``encoder=``, ``group=``, ``on_epoch=`` where
        they are asked for. Returns also every epoch's losses, as the board may have lost some.
        """
        import ray
        import torch

        self._driver.check()
        # By name: a handle among the arguments of a restarted actor might be lost.
        self._board = self._board or ray.get_actor(PROGRESS_BOARD)
        torch.set_num_threads(1)
        given: dict[str, Any] = {}
        if encoder is not None:
            given["encoder"] = self._load(encoder)
            if helpers is not None:
                given["group"] = WorkerGroup(given["encoder"], encoder, helpers)
        losses: Epochs = []

        def on_epoch(epoch: int, of_seeds: Mapping[int, float]) -> None:
            losses.append((epoch, of_seeds))
            self._board.write_epoch.remote(call, epoch, of_seeds)

        if epochs:
            given["on_epoch"] = on_epoch
        result = function(**given, **arguments, progress=self._progress(call))
        if encoder is not None:
            self._encoder.check_unchanged()
        return result, losses

    def make_replica(
        self, factory: Callable[..., Any], encoder: EncoderReference, arguments: dict[str, Any]
    ) -> None:
        """Make this worker's replica of an object: ``factory(encoder=…, **arguments)``."""
        import torch

        self._driver.check()
        torch.set_num_threads(1)
        self._replica = factory(encoder=self._load(encoder), **arguments)

    def call_replica(self, method: str, shared: Any, part: Any) -> Any:
        """Call a method of this worker's replica; NoReplica where it was started again since."""
        if self._replica is None:
            raise NoReplica
        result = getattr(self._replica, method)(shared, part)
        self._encoder.check_unchanged()
        return result

    def drop_replica(self) -> None:
        """Give the replica up."""
        self._replica = None

    def _load(self, reference: EncoderReference) -> Any:
        if self._loaded != reference:
            from papa.encoders.encoder import load_encoder

            self._encoder, self._loaded = None, None
            self._encoder = load_encoder(self._driver.encoder(reference), self._chosen_device())
            self._loaded = reference
        return self._encoder

    def _chosen_device(self) -> str:
        if self._device != "auto":
            return self._device
        import ray

        return "cuda" if ray.get_runtime_context().get_accelerator_ids().get("GPU") else "cpu"

    def _progress(self, call: int) -> Progress:
        last = 0.0

        def report(done: int, total: int) -> None:
            nonlocal last
            now = time.monotonic()
            if now - last >= PROGRESS_SECONDS or done >= total:
                last = now
                self._board.write.remote(call, done, total)

        return report


class ProgressBoard:
    """How far calls are; an actor once Ray wraps it."""

    def __init__(self) -> None:
        self._news: dict[int, tuple[int, int]] = {}
        self._epochs: dict[int, Epochs] = {}

    def write(self, call: int, done: int, total: int) -> None:
        self._news[call] = (done, total)

    def write_epoch(self, call: int, epoch: int, losses: Mapping[int, float]) -> None:
        self._epochs.setdefault(call, []).append((epoch, losses))

    def read(self) -> tuple[dict[int, tuple[int, int]], dict[int, Epochs]]:
        """What was written since it was read last, by call: how far it is, and its epochs."""
        news, self._news = self._news, {}
        epochs, self._epochs = self._epochs, {}
        return news, epochs


class BoardReader:
    """What the driver knows of the progress of its calls: one request for all of them, however
    many. Thread-safe.
    """

    def __init__(self, ray: Any, board: Any) -> None:
        self._ray, self._board = ray, board
        self._lock = threading.Lock()
        self._known: dict[int, tuple[int, int]] = {}
        self._epochs: dict[int, Epochs] = {}
        self._read_at = -math.inf

    @contextmanager
    def following(self, call: int) -> Iterator[Callable[[], tuple[int, int, Epochs]]]:
        """Yield how far the call is: (done, total, epochs that ended since it was asked last)."""
        with self._lock:
            self._known[call], self._epochs[call] = (0, 1), []
        try:
            yield lambda: self._read(call)
        finally:
            with self._lock:
                del self._known[call], self._epochs[call]

    def _read(self, call: int) -> tuple[int, int, Epochs]:
        with self._lock:
            if time.monotonic() - self._read_at >= PROGRESS_SECONDS:
                news, epochs = self._ray.get(self._board.read.remote())
                self._known |= {other: news[other] for other in self._known.keys() & news.keys()}
                for other in self._epochs.keys() & epochs.keys():
                    self._epochs[other] += epochs[other]
                self._read_at = time.monotonic()
            ended, self._epochs[call] = self._epochs[call], []
            return *self._known[call], ended
