"""Stage ``outputs``: what heads put out on average over text, or on inputs drawn from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from papa.spec import ConstantsKind
from papa.storage.artifacts import ArtifactReference
from papa.study.step import Context, WorkerStep
from papa.study.tokenise import OnText, open_corpus

if TYPE_CHECKING:
    from papa.attention.outputs import ConstantOutputs
    from papa.encoders.encoder import Encoder


@dataclass(frozen=True, eq=False)
class Outputs(OnText, WorkerStep):
    """Constant outputs of an encoder's heads, from the training text of a corpus: one of
    ``papa.spec.values``, but for what is trained, with a seed where it is drawn.
    """

    stage: ClassVar[str] = "outputs"
    version: ClassVar[int] = 1
    urgency: ClassVar[int] = 2
    loads_encoder: ClassVar[bool] = True

    slots: int
    kind: ConstantsKind
    seed: int | None = None

    def spec(self) -> dict[str, Any]:
        return {**super().spec(), "slots": self.slots, "kind": self.kind, "seed": self.seed}

    def compute(self, encoder: Encoder, context: Context) -> None:
        from papa.attention.outputs import FILE, mean_outputs, resampled_outputs

        split = open_corpus(context.found[self.corpus]).split("train")
        tokens = encoder.tokens_per_batch(context.execution.batch_tokens)
        if self.seed is None:
            found = mean_outputs(
                encoder,
                split,
                by_slot=self.kind == "mean_output_by_slot",
                batch_tokens=tokens,
                progress=context.progress,
            )
        else:
            found = resampled_outputs(
                encoder, split, seed=self.seed, batch_tokens=tokens, progress=context.progress
            )
        with context.published() as folder:
            found.save(folder / FILE)

    def read(self, found: ArtifactReference) -> ConstantOutputs:
        """What it made, verified."""
        from papa.attention.outputs import read_outputs

        return read_outputs(found, self.kind, self.encoder.layers, self.encoder.heads, self.slots)
