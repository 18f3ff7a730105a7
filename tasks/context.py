"""What the body of a stage may use beside its arguments: its inputs, a loaded model, a place to
publish its artifact.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any, TypeVar, cast

from papa.models.native import ModelReference, class_of_native_head
from papa.models.reference import EncoderReference
from papa.progress import Progress, ignore_progress
from papa.spec import ExecutionSpec, TaskSpec
from papa.storage.artifacts import ArtifactReference, in_threads, published
from papa.storage.files import Files
from papa.storage.store import Store
from papa.tasks.step import Step

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from papa.models.encoder import Encoder
    from papa.native.passes import NativeHead
    from papa.scores.custom import CustomScore
    from papa.text.corpus import TokenisedSplit
    from papa.workers import Executor

_Result = TypeVar("_Result")


def model_of(step: Step) -> ModelReference | None:
    """Return what a worker loads for a step: its ``encoder``, or that model with its native head,
    where the step's task is answered by it.
    """
    encoder: EncoderReference | None = step.arguments.get("encoder")
    task: TaskSpec | None = step.arguments.get("task")
    if encoder is None:
        return None
    if task is None or not is_native(task):
        return ModelReference(encoder)
    return ModelReference(encoder, class_of_native_head(task, encoder))


def is_native(task: TaskSpec) -> bool:
    """Return whether a step of this task runs the model with its native head."""
    # The task of a step that runs the plain encoder has no key ``head``.
    return getattr(task, "head", "probe") == "native"


@dataclass(frozen=True)
class Context:
    """What the body of a stage may use beside its arguments.

    Attributes:
        steps: The steps that the call runs: one, or several seeds of a stage ``by_seed``.
        store: Where its artifact and those of its inputs lie.
        execution: Settings that change results by rounding alone.
        model: What ``model_of`` the step says, loaded on this worker: read it as
            ``loaded_encoder``, or by ``open_native_head``.
        workers: All workers, on the driver; read them as ``executor``.
    """

    steps: tuple[Step, ...]
    store: Store
    execution: ExecutionSpec
    progress: Progress
    model: Encoder | PreTrainedModel | None = None
    workers: Executor | None = None
    _epochs: list[tuple[int, Mapping[int, float], float]] = field(default_factory=list)
    _started: float = field(default_factory=time.monotonic)
    _processor_started: float = field(default_factory=time.process_time)

    @property
    def step(self) -> Step:
        """The step that runs; of several seeds the first."""
        return self.steps[0]

    @property
    def executor(self) -> Executor:
        """All workers."""
        assert self.workers is not None, "the driver has them"
        return self.workers

    def call_worker(
        self,
        function: Callable[..., _Result],
        *,
        progress: Progress = ignore_progress,
        with_model: bool = True,
        on_drivers_machine: bool = False,
        **arguments: Any,
    ) -> _Result:
        """Call a function on the next idle worker, or ``on_drivers_machine`` (``Worker.run``). It
        gets a context of its own, with the step's model unless it does without, and the
        ``arguments``.
        """
        result: _Result = self.executor.run(
            _call_in_context,
            model=model_of(self.step) if with_model else None,
            arguments={
                "function": function,
                "steps": self.steps,
                "store": self.store,
                "execution": self.execution,
                "arguments": arguments,
            },
            progress=progress,
            on_drivers_machine=on_drivers_machine,
        )
        return result

    @property
    def loaded_encoder(self) -> Encoder:
        """The argument ``encoder``, loaded."""
        assert self.model is not None, "the step has an encoder"
        return cast("Encoder", self.model)

    @cached_property
    def artifacts(self) -> dict[Step, ArtifactReference]:
        """The artifacts of its inputs. Raises ArtifactError if one is not complete."""
        return in_threads(lambda step: step.reference(self.store), self.step.inputs)

    def open_native_head(
        self,
        task: TaskSpec,
        encoder: EncoderReference,
        split: TokenisedSplit,
        label_names: Sequence[str] | None = None,
        score: CustomScore | None = None,
    ) -> NativeHead:
        """Open the model that this worker has loaded with its native head, for a task on a split.
        ``label_names`` are the task's classes, where its labels are read; a user's own ``score``
        takes the place of answers.
        """
        from papa.native.loading import open_native

        assert self.model is not None, "the step has a native head"
        model = cast("PreTrainedModel", self.model)
        batch_tokens = self.execution.batch_tokens
        return open_native(model, task, encoder, split, label_names, score, batch_tokens)

    @contextmanager
    def scratch_folder(self) -> Iterator[Path]:
        """Yield a new folder for features on disk, which is removed when the block ends."""
        scratch = Files(self.store.scratch)
        # A folder that another user of the store left cannot be removed: each has its own.
        name = f"features-{self.step.key[:16]}-{os.geteuid()}"
        # A killed call may have left its features there.
        scratch.remove(name)
        try:
            with scratch.filled(name) as folder:
                yield folder
        finally:
            scratch.remove(name)

    def time_spent(self) -> dict[str, Any]:
        """Return the device and its seconds: processor time on a CPU, elapsed time on a GPU."""
        device = "cpu" if self.model is None else str(self.model.device.type)
        if device == "cpu":
            seconds = time.process_time() - self._processor_started
        else:
            seconds = time.monotonic() - self._started
        return {"worker_seconds": seconds, "device": device}

    @property
    def seconds(self) -> float:
        """The time since the call began; of a call with several seeds each one's share."""
        return (time.monotonic() - self._started) / len(self.steps)

    def build_metadata(self, step: Step | None = None) -> dict[str, Any]:
        """Return what the artifact of a step, by default the first, says of itself, with the time
        spent until now.
        """
        step = step or self.step
        spent = self.time_spent()
        return {
            "stage": step.stage.name,
            "name": step.name,
            "key": step.key,
            "spec": step.spec,
            "stage_version": step.stage.version,
            "inputs": [needed.address for needed in step.inputs],
            "seconds": self.seconds,
            "worker_seconds": spent["worker_seconds"] / len(self.steps),
            "device": spent["device"],
        }

    def on_epoch(self, epoch: int, losses: Mapping[int, float]) -> None:
        """Keep each seed's mean training loss in an epoch for the metadata of ``published``."""
        self._epochs.append((epoch, losses, time.time()))

    def _train_losses(self, step: Step) -> list[tuple[int, float, float]]:
        """Return the number of each epoch, from 1, the step's mean training loss in it, and when it
        ended, in seconds since 1970.
        """
        losses: list[tuple[int, float, float]] = []
        for epoch, losses_by_seed, ended in self._epochs:
            seeds = step["seeds"] if step.stage.by_seed else losses_by_seed
            # Seeds of trained substitutes have their epochs one after the other.
            losses_of_step = [losses_by_seed[seed] for seed in seeds if seed in losses_by_seed]
            if losses_of_step:
                losses.append((epoch, mean(losses_of_step), ended))
        return losses

    @contextmanager
    def published(self, step: Step | None = None, **facts: Any) -> Iterator[Path]:
        """Yield a folder to fill, which becomes the artifact of a step, with its losses by epoch in
        the metadata.

        Args:
            step: One of ``steps``; None for the only one.
            facts: Further metadata.
        """
        step = step or self.step
        metadata = {**self.build_metadata(step), "train_losses": self._train_losses(step), **facts}
        with published(step.folder(self.store), metadata) as folder:
            yield folder


def _call_in_context(
    *,
    function: Callable[..., _Result],
    steps: tuple[Step, ...],
    store: Store,
    execution: ExecutionSpec,
    arguments: Mapping[str, Any],
    progress: Progress,
    model: Encoder | PreTrainedModel | None = None,
) -> _Result:
    """Call a function with a new context, on a worker."""
    return function(Context(steps, store, execution, progress, model), **arguments)
