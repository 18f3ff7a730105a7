"""What calls functions one after the other: this process, or an actor of a pool."""

from __future__ import annotations

import gc
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from papa.errors import EncoderError, HubUnreachableError, PapaError
from papa.models.reference import EncoderReference, resolve_encoder
from papa.progress import Progress, ignore_progress
from papa.spec import EncoderSpec

_LIBRARIES = ("papa-attention", "torch", "transformers", "numpy")
INSTALL = "install PAPA and the same versions on every node"


class ClusterError(PapaError):
    """Ray cannot be reached, refuses or has ended, or one of its machines does not fit."""


@runtime_checkable
class Executor(Protocol):
    """Runs functions on workers: a pool of Ray actors, or this process.

    Attributes:
        closed: Whether its block has ended.
        shortage: What a cluster lacks for all workers once they were begun; empty: nothing.
    """

    closed: bool
    shortage: str

    @property
    def size(self) -> int:
        """How many workers there are."""

    def begin(self) -> Future[None]:
        """Have workers come up; return a future that is done once they are there."""

    def abandon(self) -> None:
        """End what is not below this process, at once."""

    def run(
        self,
        function: Callable[..., Any],
        *,
        arguments: Mapping[str, Any],
        encoder: EncoderReference | None = None,
        progress: Progress = ignore_progress,
        at_driver: bool = False,
    ) -> Any:
        """Call a module-level function on the next idle worker, and wait for its result.

        Args:
            function: Called with ``arguments``, ``progress`` and the loaded ``encoder``, if any.
            arguments: Its keyword arguments.
            encoder: The encoder that the worker shall have loaded.
            progress: Called with (done, total) while the function runs.
            at_driver: Whether the function reads files of the driver's machine.
        """


class Worker:
    """Calls functions one after the other, in this process or, once Ray wraps it, in an actor.

    Each call has one thread, so that its results do not depend on how many workers there are. The
    encoder that was loaded last is kept for the next call.

    Args:
        device: The device that encoders are loaded on.
        loaded: Encoders that are in memory already.
        versions: Versions of the driver's libraries, where the driver may be another machine.
    """

    size = 1
    closed = False
    shortage = ""

    def __init__(
        self,
        device: str = "auto",
        loaded: Mapping[EncoderReference, Any] | None = None,
        versions: Mapping[str, str] | None = None,
    ) -> None:
        self._device, self._versions, self._given = device, versions, dict(loaded or {})
        self._last: dict[EncoderReference, Any] = {}

    def run(
        self,
        function: Callable[..., Any],
        *,
        arguments: Mapping[str, Any],
        encoder: EncoderReference | None = None,
        progress: Progress = ignore_progress,
        at_driver: bool = False,
    ) -> Any:
        """Call a function; see ``Executor.run``."""
        import torch

        progress(0, 1)  # It has started, whether or not it ever reports how far it is.

        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            given = {"encoder": self._load(encoder)} if encoder else {}
            return function(**given, **arguments, progress=progress)
        finally:
            torch.set_num_threads(threads)

    def begin(self) -> Future[None]:
        """Import what every call needs; return a future that is done."""
        begun: Future[None] = Future()
        self.ready(None)
        begun.set_result(None)
        return begun

    def abandon(self) -> None:
        """Do nothing: it ends with this process."""

    def ready(self, shared: Path | None) -> None:
        """Nothing, as soon as an actor can take a call; a ClusterError where it never can."""
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
        with uncollected():
            # What every call needs, while the driver is still busy with its own start.
            import papa.models.encoder
            import papa.probes.evaluate  # noqa: F401
        node, here = f"node {socket.gethostname()}", versions_here()
        if self._versions not in (None, here):
            raise ClusterError(f"{node} has {here}, the driver {self._versions}: {INSTALL}")
        if self._versions and shared and not shared.is_file():
            raise ClusterError(
                f"{node} does not see {shared.parent} of the store: use one that all nodes reach, "
                "such as --store s3://bucket/papa, or a shared folder"
            )

    def _load(self, reference: EncoderReference) -> Any:
        if reference in self._given:
            return self._given[reference]
        if reference not in self._last:
            import torch

            from papa.models.encoder import load_encoder

            self._last.clear()
            auto = "cuda" if torch.cuda.is_available() else "cpu"
            here = encoder_here(reference) if self._versions else reference
            self._last[reference] = load_encoder(here, self._device.replace("auto", auto))
        return self._last[reference]


def versions_here() -> dict[str, str]:
    """Of the libraries that results depend on, without build labels such as ``+cu126``."""
    return {name: version(name).partition("+")[0] for name in _LIBRARIES}


def encoder_here(reference: EncoderReference) -> EncoderReference:
    """The same encoder by its files on this machine of a cluster; loading checks its digest."""
    try:
        found = resolve_encoder(EncoderSpec(name=reference.name, revision=reference.revision))
    except (EncoderError, HubUnreachableError) as error:
        raise EncoderError(f"node {socket.gethostname()} lacks the encoder: {error}") from None
    return replace(reference, folder=found.folder)


@contextmanager
def uncollected() -> Iterator[None]:
    """No garbage is collected while the block imports large libraries, whose million objects all
    stay, and what it made is never looked at again: a fifth of the time of an import, and most of
    that in which a process ends, goes into such looks.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_on:
            gc.enable()
