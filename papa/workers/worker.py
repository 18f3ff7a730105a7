"""One worker: a process that runs calls one after the other and keeps the encoder it loaded last."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

from papa.encoders.reference import EncoderReference
from papa.errors import TransientError
from papa.progress import Progress
from papa.workers.machine import Site
from papa.workers.team import NotInCrew, Together

BOARD = "papa-progress"
TOLD_SECONDS = 0.3


class WorkerError(TransientError):
    """A worker was lost more often than its work is repeated."""


class Worker:
    """One process that runs calls one after the other; an actor once Ray wraps it.

    It computes with one thread, so results are the same for any number of workers.

    Args:
        device: "auto" takes the GPU that Ray gave it, where it gave one.
        site: what its machine must have in common with the driver's.
    """

    def __init__(self, device: Literal["auto", "cpu", "cuda"], site: Site) -> None:
        import ray

        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
        self._device = device
        self._site = site
        # By name: a handle among the arguments of a restarted actor might be lost.
        self._board: Any = ray.get_actor(BOARD)
        self._encoder: Any = None
        self._loaded: EncoderReference | None = None
        self._member: Any = None

    def ready(self) -> None:
        """Nothing, as soon as the worker can take a call.

        Raises:
            SiteError: its machine does not fit the driver's.
        """
        self._site.check()

    def run(
        self,
        function: Callable[..., Any],
        encoder: EncoderReference | None,
        arguments: dict[str, Any],
        call: int,
        helpers: Sequence[str] | None,
    ) -> Any:
        """``function(**arguments, progress=…)``, with ``encoder=`` and ``team=`` where they are asked for."""
        import torch

        self._site.check()
        torch.set_num_threads(1)
        given: dict[str, Any] = {}
        if encoder is not None:
            given["encoder"] = self._load(encoder)
            if helpers is not None:
                given["team"] = Together(given["encoder"], encoder, helpers)
        return function(**given, **arguments, progress=self._progress(call))

    def join(self, factory: Callable[..., Any], encoder: EncoderReference, arguments: dict[str, Any]) -> None:
        """Make this worker's member of a crew: ``factory(encoder=…, **arguments)``."""
        import torch

        self._site.check()
        torch.set_num_threads(1)
        self._member = factory(encoder=self._load(encoder), **arguments)

    def ask(self, method: str, shared: Any, part: Any) -> Any:
        """Call a method of this worker's member of a crew.

        Raises:
            NotInCrew: it has none, as it was started again since.
        """
        if self._member is None:
            raise NotInCrew
        return getattr(self._member, method)(shared, part)

    def leave(self) -> None:
        """Give the member up."""
        self._member = None

    def _load(self, reference: EncoderReference) -> Any:
        if self._loaded != reference:
            from papa.encoders.encoder import load_encoder

            self._encoder, self._loaded = None, None
            self._encoder = load_encoder(self._site.encoder(reference), self._chosen_device())
            self._loaded = reference
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
            if now - last >= TOLD_SECONDS or done >= total:
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
