"""What calls functions one after the other: this process, or an actor of a pool."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from papa.cores import WorkerCores
from papa.errors import EncoderError, HubUnreachableError, PapaError
from papa.garbage import uncollected
from papa.models.native import ModelReference
from papa.models.reference import EncoderReference, resolve_encoder
from papa.progress import Progress, ignore_progress
from papa.spec import EncoderSpec

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from papa.models.encoder import Encoder

_LIBRARIES = ("papa-attention", "torch", "transformers", "numpy")
INSTALL = "install PAPA and the same versions on every node"


class ClusterError(PapaError):
    """Ray cannot be reached, refuses or has ended, or one of its machines does not fit."""


class Worker:
    """Calls functions one after the other, in this process or, once Ray wraps it, in an actor: an
    executor of ``size`` 1, as ``papa.workers.WorkerPool`` is one of several.

    Each call has one thread, so that its results do not depend on how many workers there are. Parts
    of a mini-batch, seeds of a probe and batches of features are computed on unused ``cores`` as
    well (``papa.cores``), with equal results. The model that was loaded last is kept for the next
    call, and no other; native heads of encoders that are ``loaded`` already are on their devices.
    ``versions`` are those of the driver's libraries, where the driver may be another machine.
    """

    size = 1
    closed = False
    shortage = ""

    def __init__(
        self,
        device: str = "auto",
        loaded: Mapping[EncoderReference, Encoder] | None = None,
        versions: Mapping[str, str] | None = None,
        cores: WorkerCores | None = None,
    ) -> None:
        self._device = device
        self._versions = versions
        self._cores = cores
        self._in_memory = dict(loaded or {})
        self._last: dict[ModelReference, Encoder | PreTrainedModel] = {}
        self._lock = threading.Lock()

    def run(
        self,
        function: Callable[..., Any],
        *,
        arguments: Mapping[str, Any],
        model: ModelReference | None = None,
        progress: Progress = ignore_progress,
        on_drivers_machine: bool = False,
    ) -> Any:
        """Call a module-level function on the next idle worker, which has loaded the ``model``, if
        any, and wait for its result.

        The function gets ``arguments``, ``progress`` and the model. ``on_drivers_machine``: it
        reads files that lie there.
        """
        import torch

        with self._lock:
            progress(0, 1)  # It has started, whether or not it ever reports how far it is.
            threads = torch.get_num_threads()
            torch.set_num_threads(1)
            try:
                with self._cores.used() if self._cores else nullcontext():
                    if model is None:
                        return function(**arguments, progress=progress)
                    return function(**arguments, model=self._load(model), progress=progress)
            finally:
                torch.set_num_threads(threads)

    def begin(self) -> None:
        """Import what every call needs."""
        self.ready(None)

    def abandon(self) -> None:
        """Do nothing: it ends with this process."""

    def ready(self, shared: Path | None) -> None:
        """Block until an actor can take calls. Raises ClusterError if it never can."""
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
        with uncollected():
            # What every call needs, while the driver is still busy with its own start.
            import papa.models.encoder
            import papa.probes.evaluate  # noqa: F401
        node = f"node {socket.gethostname()}"
        here = versions_here()
        if self._versions not in (None, here):
            raise ClusterError(f"{node} has {here}, the driver {self._versions}: {INSTALL}")
        if self._versions and shared and not shared.is_file():
            raise ClusterError(
                f"{node} does not see {shared.parent} of the store: use one that all nodes reach, "
                "such as --store s3://bucket/papa, or a shared folder"
            )

    def _load(self, model: ModelReference) -> Encoder | PreTrainedModel:
        """Return the model that was loaded last, or another one in its place."""
        in_memory = self._in_memory.get(model.encoder)
        if in_memory is not None and not model.native_class:
            return in_memory
        if model not in self._last:
            import torch

            from papa.models.encoder import load_encoder
            from papa.models.native import load_native_model

            self._last.clear()  # Its memory is needed before the next one is there.
            device = self._device.replace("auto", "cuda" if torch.cuda.is_available() else "cpu")
            if in_memory is not None:
                device = str(in_memory.device)
            here = encoder_here(model.encoder) if self._versions else model.encoder
            self._last[model] = (
                load_native_model(here, model.native_class, device)
                if model.native_class
                else load_encoder(here, device)
            )
        return self._last[model]


def versions_here() -> dict[str, str]:
    """Return the versions of libraries that results depend on, without build labels such as
    ``+cu126``.
    """
    return {name: version(name).partition("+")[0] for name in _LIBRARIES}


def encoder_here(reference: EncoderReference) -> EncoderReference:
    """Return the same encoder by its files on this machine of a cluster; loading checks its
    digest.
    """
    try:
        resolved = resolve_encoder(EncoderSpec(name=reference.name, revision=reference.revision))
    except (EncoderError, HubUnreachableError) as error:
        raise EncoderError(f"node {socket.gethostname()} lacks the encoder: {error}") from None
    return replace(reference, folder=resolved.folder)
