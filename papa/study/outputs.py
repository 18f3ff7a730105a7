"""Constants that are no matrices, by stage: ``outputs``, what heads put out on average over text or
on inputs drawn from it; of a decoder ``relative``, what they take from each distance on average;
for comparison ``streaming``, the first tokens and the last, and ``reused``, A of the layer before.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, ClassVar

from papa.encoders.reference import EncoderReference, load_tokenizer
from papa.spec import ConstantsKind
from papa.spec.values import OUTPUTS
from papa.storage.artifacts import ArtifactReference, check_form, reading, verify
from papa.study.step import Context, WorkerStep
from papa.study.tokenise import OnText, open_corpus

if TYPE_CHECKING:
    from papa.ablation.relative import ByDistance
    from papa.ablation.substitutes import Substitute
    from papa.attention.outputs import ConstantOutputs
    from papa.encoders.encoder import Encoder

DISTANCES = "distances.safetensors"


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

        from papa.corpora.tokens import special_tokens_for
        from papa.probes.decoder import average_by_distance
        from papa.probes.own import load_own, own_class

        task = self.corpus.task
        found = average_by_distance(
            load_own(self.encoder, own_class(task, self.encoder)),
            open_corpus(context.found[self.corpus]).split("train"),
            special_tokens_for(task.kind, load_tokenizer(self.encoder)),
            context.progress,
        )
        with context.published() as folder:
            save_file(
                {"weights": found.weights.contiguous(), "ends": found.ends.contiguous()},
                folder / DISTANCES,
            )


def read_distances(found: ArtifactReference, encoder: EncoderReference) -> ByDistance:
    """What a finished step of stage ``relative`` holds."""
    from safetensors.torch import load_file

    from papa.ablation.relative import ByDistance

    verify(found.folder, DISTANCES)
    with reading(found.path):
        held = load_file(found.folder / DISTANCES)
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
    urgency: ClassVar[int] = 3

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
