"""Stage ``relative``: what a decoder's heads take from each distance, on average over text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from papa.encoders.reference import EncoderReference, load_tokenizer
from papa.storage.artifacts import ArtifactReference, check_form, reading, verify
from papa.study.step import Context, WorkerStep
from papa.study.tokenise import OnText, open_corpus

if TYPE_CHECKING:
    from papa.ablation.relative import ByDistance

DISTANCES = "distances.safetensors"


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
