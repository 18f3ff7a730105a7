"""A study's steps run in this process, one after the other: no Ray and no Prefect."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from papa.encoders.reference import EncoderReference
from papa.processes import Process
from papa.progress import OnEpoch, Progress, ignore_progress
from papa.spec import ExecutionSpec
from papa.study.locks import announced
from papa.study.making import make
from papa.study.step import Reporter, Session, Step
from papa.study.store import Store


class ThisProcess:
    """What stands in for the pool of workers: this process, with one thread, as each of them.

    Args:
        device: where encoders run; auto takes the GPU where there is one.
        loaded: encoders that are at hand; of others the last one that was asked for is kept.
    """

    size, closed = 1, False

    def __init__(
        self, device: str = "auto", loaded: Mapping[EncoderReference, Any] | None = None
    ) -> None:
        self._device = device
        self._given = dict(loaded or {})
        self._last: dict[EncoderReference, Any] = {}

    @property
    def on_gpu(self) -> bool:
        """Whether encoders run on a GPU."""
        import torch

        return self._device == "cuda" or (self._device == "auto" and torch.cuda.is_available())

    def run(
        self,
        function: Callable[..., Any],
        *,
        arguments: Mapping[str, Any],
        encoder: EncoderReference | None = None,
        progress: Progress = ignore_progress,
        on_epoch: OnEpoch | None = None,
        **_: Any,
    ) -> Any:
        """Call a function; see ``WorkerPool.run``. There are no helpers, and no queue."""
        given: dict[str, Any] = {} if on_epoch is None else {"on_epoch": on_epoch}
        with _one_thread():
            if encoder is not None:
                given["encoder"] = self._load(encoder)
            result = function(**given, **arguments, progress=progress)
            if encoder is not None:
                given["encoder"].check_unchanged()
        return result

    def each(self, function: Callable[[Any], object], values: Iterable[Any]) -> Iterator[None]:
        """Call a function of each value; see ``WorkerPool.each``."""
        for value in values:
            function(value)
            yield

    def _load(self, reference: EncoderReference) -> Any:
        if reference in self._given:
            return self._given[reference]
        if reference not in self._last:
            from papa.encoders.encoder import load_encoder

            self._last.clear()
            self._last[reference] = load_encoder(reference, "cuda" if self.on_gpu else "cpu")
        return self._last[reference]


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute with one thread inside the block, so that results are any run's, to the bit."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def run_here(
    steps: Iterable[Step],
    store: Store,
    execution: ExecutionSpec,
    reporter: Reporter,
    loaded: Mapping[EncoderReference, Any] | None = None,
) -> None:
    """Run steps in their order, unless their artifacts are complete; the first that fails ends it.

    Args:
        steps: each after those it reads.
        loaded: encoders that are at hand.

    Raises:
        PapaError: a step cannot be made.
    """
    session = Session(store, ThisProcess(execution.device, loaded), execution, reporter)
    with announced(store, str(Process.this())) as alive:
        for step in steps:
            make(step, session)
            alive()
