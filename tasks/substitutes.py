"""Substitutes: what takes a head's attention's place, beside the average over the task's own text.

What takes milliseconds (identity, Toeplitz, a matrix derived from an average) is computed where it
is used and is no step. Steps are what needs the encoder: constant outputs, and of a native head the
average by distance; and matrices that a user of the library supplied.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pkgutil import resolve_name
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int

from papa.models.reference import EncoderReference, load_tokenizer
from papa.spec import SubstituteKind, TaskSpec
from papa.spec.substitutes import entry_of
from papa.storage.artifacts import ArtifactReference, verified
from papa.tasks.context import Context, is_native
from papa.tasks.step import Step, stage
from papa.text.corpus import open_corpus
from papa.text.layout import special_slots
from papa.text.tokens import special_tokens_of

if TYPE_CHECKING:
    from papa.heads.constants import ConstantMatrices
    from papa.heads.substitutes import Substitute
    from papa.models.layer import Observe

DISTANCES = "distances.safetensors"


@dataclass(frozen=True)
class SubstituteSource:
    """A kind of substitute, and the step that computes what it is made of.

    Attributes:
        kind: Its name in a study's ``substitutes``.
        parameters: Its whole-number settings, such as ``window``.
        source: The step whose artifact is the substitute, or what it is derived from; None where
            it needs no encoder.
    """

    kind: SubstituteKind
    parameters: Mapping[str, int] = field(default_factory=dict)
    source: Step | None = None

    @property
    def stored_by(self) -> Step | None:
        """The step whose artifact is the substitute itself; None where it is derived."""
        is_average = self.source is not None and self.source.stage.name == "average"
        return None if is_average and self.kind != "average" else self.source

    def load(
        self, artifact: ArtifactReference | None, encoder: EncoderReference, task: TaskSpec
    ) -> Substitute:
        """Load the substitute of an encoder's heads for the kind and slots of a task, from the
        finished artifact of ``source``.
        """
        from safetensors.torch import load_file

        from papa.heads.average import ByDistance
        from papa.heads.constants import ConstantMatrices, control, derived
        from papa.heads.stored_outputs import read_outputs

        entry = entry_of(self.kind)
        if entry.origin == "attention":
            rule: Substitute = resolve_name(entry.rule)(**self.parameters)
            return rule
        if entry.origin == "slots":
            matrices = control(
                self.kind, encoder.layers, encoder.heads, task.slots, **self.parameters
            )
        else:
            assert artifact is not None
            if entry.origin == "outputs":
                return read_outputs(artifact)
            if entry.is_by_distance and is_native(task):
                tensors = load_file(verified(artifact, DISTANCES) / DISTANCES)
                return ByDistance(tensors["weights"], tensors["ends"])
            matrices = ConstantMatrices.load(artifact)
            if entry.function:
                special = special_slots_of(encoder, task)
                matrices = derived(self.kind, matrices, special, **self.parameters)
        if matrices.special is None and is_native(task):
            # Slots are positions, also of the last token.
            return replace(matrices, special=())
        return matrices


def special_slots_of(encoder: EncoderReference, task: TaskSpec) -> tuple[int, ...]:
    """Return the slots of [CLS] and [SEP] in a task's text, as far as all texts have them there."""
    if task.kind == "pair" and is_native(task):
        # The second text follows the first.
        return special_slots("text", task.slots)
    tokens = special_tokens_of(load_tokenizer(encoder), task.kind)
    return special_slots(task.kind, task.slots, double_separator=tokens.between == 2)


@stage("constant_outputs", version=3)
def constant_outputs(
    context: Context,
    encoder: EncoderReference,
    text: Step,
    kind: SubstituteKind,
    seed: int | None = None,
    task: TaskSpec | None = None,
) -> None:
    """Compute constant outputs of an encoder's heads: their mean, or drawn from the training text
    by the seed.

    ``task``: None runs the plain encoder; else the model with this task's native head. In: the
    tokenised text and the encoder. Out: values [L, H, positions, d / H]. Where: a worker.
    """
    from papa.heads.stored_outputs import FILE, outputs_over
    from papa.text.batches import micro_batches

    split = open_corpus(context.artifacts[text]).split("train")

    def observe_rows(observe: Observe, rows: Int[np.ndarray, " rows"]) -> None:
        if task is not None:
            native = context.open_native_head(task, encoder, split)
            native.observe(observe, rows, context.progress)
            return
        loaded = context.loaded_encoder
        tokens = loaded.tokens_per_batch(context.execution.batch_tokens)
        batches = micro_batches(split, rows, tokens)
        loaded.observe(observe, batches, len(rows), context.progress)

    size = (encoder.layers, encoder.heads)
    # Packed batches do not say which text is which.
    donors = 1 if task is None else 2
    outputs = outputs_over(observe_rows, split, kind, size, seed, donors)
    with context.published() as folder:
        outputs.save(folder / FILE)


@stage("average_by_distance", version=2)
def average_by_distance(
    context: Context, encoder: EncoderReference, text: Step, task: TaskSpec
) -> None:
    """Average the attention of a model with its native head by the distance between query and key.

    In: the tokenised text and the model. Out: weights by distance. Where: a worker.
    """
    from safetensors.torch import save_file

    from papa.heads.average import AverageByDistance

    average = AverageByDistance()
    split = open_corpus(context.artifacts[text]).split("train")
    native = context.open_native_head(task, encoder, split)
    native.observe(average.observe, progress=context.progress)
    by_distance = average.substitute()
    tensors = {
        "weights": by_distance.weights.cpu().contiguous(),
        "ends": by_distance.boundary_weights.cpu().contiguous(),
    }
    with context.published() as folder:
        save_file(tensors, folder / DISTANCES)


@stage("supplied_matrices", version=1, runs_on="driver thread")
def supplied_matrices(
    context: Context, encoder: EncoderReference, matrices: ConstantMatrices
) -> None:
    """Store matrices that a user of the library supplied.

    Where: in a thread of the driver, which has them; no worker is called.
    """
    plain = replace(matrices, kind="custom", counts=None, encoder_digest=None)
    plain.save(context.step.folder(context.store), context.build_metadata())
