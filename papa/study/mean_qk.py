"""Stage ``mean_qk``: constant matrices from every head's mean query and mean key."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from papa.study.step import Context, WorkerStep
from papa.study.tokenise import OnText, open_corpus

if TYPE_CHECKING:
    from papa.corpora.batches import MicroBatch
    from papa.encoders.encoder import Encoder


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
