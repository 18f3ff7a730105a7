"""Stages ``controls``, ``derived``, ``mean_qk`` and ``given``: constant matrices that depend on no
text, those made of the average or of mean queries and keys, and a user's own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from papa.encoders.reference import EncoderReference, load_tokenizer
from papa.progress import Progress
from papa.spec import ConstantsKind
from papa.study.average import Average
from papa.study.step import Context, Session, Step, WorkerStep, identity
from papa.study.tokenise import OnText, open_corpus

if TYPE_CHECKING:
    from papa.corpora.batches import MicroBatch
    from papa.encoders.encoder import Encoder


@dataclass(frozen=True, eq=False)
class Controls(WorkerStep):
    """One of ``papa.spec.controls``, for every head of an encoder."""

    stage: ClassVar[str] = "controls"
    version: ClassVar[int] = 1
    urgency: ClassVar[int] = 3

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
    """One of ``papa.spec.derived``, of every head's average."""

    stage: ClassVar[str] = "derived"
    version: ClassVar[int] = 1
    urgency: ClassVar[int] = 2

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
    urgency: ClassVar[int] = 2
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
