"""The stages beside ``average`` that make constants. Of matrices: ``controls``, which depend on
no text, ``derived`` and ``mean_qk``, made of the average or of mean queries and keys, and
``given``, a user's own. Of what are no matrices: ``outputs``, what heads put out on average over
text or on inputs drawn from it; of a decoder ``relative``, what they take from each distance on
average; for comparison ``streaming``, the first tokens and the last, and ``reused``, A of the layer
before.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, ClassVar

from papa.encoders.reference import EncoderReference, load_tokenizer
from papa.progress import Progress
from papa.spec import ConstantsKind
from papa.spec.values import OUTPUTS
from papa.storage.artifacts import ArtifactReference, check_form, opened
from papa.study.average import Average
from papa.study.step import Context, Session, Step, WorkerStep, identity
from papa.study.tokenise import OnText, open_corpus

if TYPE_CHECKING:
    from papa.ablation.substitutes import ByDistance, Substitute
    from papa.attention.outputs import ConstantOutputs
    from papa.corpora.batches import MicroBatch
    from papa.encoders.encoder import Encoder

DISTANCES = "distances.safetensors"


@dataclass(frozen=True, eq=False)
class Controls(WorkerStep):
    """One of ``papa.spec.kinds``, for every head of an encoder."""

    stage: ClassVar[str] = "controls"
    version: ClassVar[int] = 1

    encoder: EncoderReference
    kind: ConstantsKind
    slots: int
    parameters: Mapping[str, int] = field(default_factory=dict)

    def spec(self) -> dict[str, Any]:
        return {"kind": self.kind, "slots": self.slots, **self.parameters}

    def outside(self) -> dict[str, str]:
        return {"encoder": self.encoder.digest}

    def compute(self, encoder: None, context: Context) -> None:
        from papa.attention.constants import control

        shape = self.encoder.layers, self.encoder.heads, self.slots
        matrices = control(self.kind, *shape, **self.parameters)
        metadata = {**self.metadata({}), "shape": identity(self.encoder)}
        matrices.save(self.folder(context.store), self.encoder, metadata)
        context.progress(1, 1)


@dataclass(frozen=True, eq=False)
class Derived(WorkerStep):
    """One of ``papa.spec.kinds``, of every head's average."""

    stage: ClassVar[str] = "derived"
    version: ClassVar[int] = 1

    encoder: EncoderReference
    average: Average
    kind: ConstantsKind
    parameters: Mapping[str, int]

    def spec(self) -> dict[str, Any]:
        return {"kind": self.kind, **self.parameters}

    def inputs(self) -> dict[str, Step]:
        return {"average": self.average}

    def compute(self, encoder: None, context: Context) -> None:
        from papa.attention.constants import ConstantMatrices, derived
        from papa.attention.patterns import special_slots
        from papa.corpora.tokens import special_tokens_for

        found, kind, slots = context.found, self.average.corpus.task.kind, self.average.slots
        tokens = special_tokens_for(kind, load_tokenizer(self.encoder))
        special = special_slots(kind, slots, double_separator=tokens.between == 2)
        average = ConstantMatrices.load(
            found[self.average].folder, encoder=self.encoder, slots=slots
        )
        matrices = derived(self.kind, average, special, **self.parameters)
        matrices.save(self.folder(context.store), self.encoder, self.metadata(found))
        context.progress(1, 1)


@dataclass(frozen=True, eq=False)
class MeanQK(OnText, WorkerStep):
    """Mean queries and keys over the training text of a corpus, and their scores by distance, of
    an encoder with rotary positions."""

    stage: ClassVar[str] = "mean_qk"
    version: ClassVar[int] = 1
    loads_encoder: ClassVar[bool] = True

    slots: int

    def spec(self) -> dict[str, Any]:
        return {**super().spec(), "slots": self.slots}

    def compute(self, encoder: Encoder, context: Context) -> None:
        from papa.attention.mean_qk import mean_qk
        from papa.corpora.batches import micro_batches

        split = open_corpus(context.found[self.corpus]).split("train")
        tokens = encoder.tokens_per_batch(context.execution.batch_tokens)

        def batches() -> Iterator[MicroBatch]:
            done = 0
            for batch in micro_batches(split, None, tokens):
                yield batch
                context.progress(done := done + len(batch.rows), len(split))

        found = mean_qk(encoder, batches(), self.slots)
        encoder.check_unchanged()
        found.save(self.folder(context.store), self.encoder, self.metadata(context.found))


@dataclass(frozen=True, eq=False)
class Given(Step):
    """Matrices that ``papa.measure`` was given: they are no file's, and go to no worker.

    Attributes:
        matrices: C, float32 [layers, heads, slots, slots].
        seen: whether an input of their average had tokens at both slots, bool [slots, slots].
    """

    stage: ClassVar[str] = "given"
    version: ClassVar[int] = 1

    encoder: EncoderReference
    matrices: Any
    seen: Any

    def spec(self) -> dict[str, Any]:
        return {"slots": len(self.seen)}

    def outside(self) -> dict[str, str]:
        content = hashlib.sha256(self.matrices.numpy().tobytes())
        content.update(self.seen.numpy().tobytes())
        return {"encoder": self.encoder.digest, "matrices": content.hexdigest()}

    def run(self, session: Session, progress: Progress) -> None:
        from papa.attention.constants import ConstantMatrices

        matrices = ConstantMatrices(self.matrices, self.seen, "own")
        matrices.save(self.folder(session.store), self.encoder, self.metadata({}))


Matrices = Average | Controls | Derived | MeanQK | Given
"""The steps that make constant matrices."""


@dataclass(frozen=True, eq=False)
class Outputs(OnText, WorkerStep):
    """Constant outputs of an encoder's heads, from the training text of a corpus: one of
    ``papa.spec.values``, but for what is trained, with a seed where it is drawn.
    """

    stage: ClassVar[str] = "outputs"
    version: ClassVar[int] = 1
    loads_encoder: ClassVar[bool] = True

    slots: int
    kind: ConstantsKind
    seed: int | None = None

    def spec(self) -> dict[str, Any]:
        return {**super().spec(), "slots": self.slots, "kind": self.kind, "seed": self.seed}

    def compute(self, encoder: Encoder, context: Context) -> None:
        from papa.attention.outputs import FILE

        split = open_corpus(context.found[self.corpus]).split("train")
        found = resolve_name(OUTPUTS[self.kind])(
            encoder,
            split,
            batch_tokens=encoder.tokens_per_batch(context.execution.batch_tokens),
            progress=context.progress,
            **({} if self.seed is None else {"seed": self.seed}),
        )
        with context.published() as folder:
            found.save(folder / FILE)

    def read(self, found: ArtifactReference) -> ConstantOutputs:
        """What it made, verified."""
        from papa.attention.outputs import read_outputs

        return read_outputs(found, self.kind, self.encoder.layers, self.encoder.heads, self.slots)


@dataclass(frozen=True, eq=False)
class Distances(OnText, WorkerStep):
    """Average a decoder's attention by distance over the training text of a corpus."""

    stage: ClassVar[str] = "relative"
    version: ClassVar[int] = 1

    def compute(self, encoder: None, context: Context) -> None:
        from safetensors.torch import save_file

        from papa.probes.own import average_by_distance
        from papa.probes.own_model import opened_own

        model, special_tokens = opened_own(self.corpus.task, self.encoder)
        split = open_corpus(context.found[self.corpus]).split("train")
        found = average_by_distance(model, split, special_tokens, context.progress)
        with context.published() as folder:
            save_file(
                {"weights": found.weights.contiguous(), "ends": found.ends.contiguous()},
                folder / DISTANCES,
            )


def read_distances(found: ArtifactReference, encoder: EncoderReference) -> ByDistance:
    """What a finished step of stage ``relative`` holds."""
    from safetensors.torch import load_file

    from papa.ablation.substitutes import ByDistance

    with opened(found, DISTANCES) as folder:
        held = load_file(folder / DISTANCES)
        shape = (encoder.layers, encoder.heads)
        check_form(
            weights=(tuple(held["weights"].shape[:2]), shape),
            ends=(tuple(held["ends"].shape), (*shape, 2)),
        )
        return ByDistance(held["weights"], held["ends"])


@dataclass(frozen=True, eq=False)
class OnTheFly(WorkerStep):
    """What heads see; nothing is computed, so its artifact holds no more than its record."""

    version: ClassVar[int] = 1

    parameters: Mapping[str, int]

    def spec(self) -> dict[str, Any]:
        return dict(self.parameters)

    def compute(self, encoder: None, context: Context) -> None:
        with context.published():
            context.progress(1, 1)

    @abstractmethod
    def substitute(self) -> Substitute:
        """What its heads put out."""


class Streamed(OnTheFly):
    """The first tokens, sinks, and the last, recent."""

    stage: ClassVar[str] = "streaming"

    def substitute(self) -> Substitute:
        from papa.ablation.substitutes import Streaming

        return Streaming(**self.parameters)


class ReusedBefore(OnTheFly):
    """What the same head of the layer before sees."""

    stage: ClassVar[str] = "reused"

    def substitute(self) -> Substitute:
        from papa.ablation.substitutes import Reused

        return Reused()
