"""Stage ``frozen_probe``: the task's probe on the encoder as it is, which head scores read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from papa.spec import TaskSpec
from papa.storage.artifacts import ArtifactReference, reading, verify
from papa.study.step import Context, WorkerStep
from papa.study.tokenise import OnText, open_corpus

if TYPE_CHECKING:
    from papa.corpora.corpus import TokenisedCorpus
    from papa.encoders.encoder import Encoder
    from papa.probes.probes import Probe

WEIGHTS = "probe.safetensors"


@dataclass(frozen=True, eq=False)
class FrozenProbe(OnText, WorkerStep):
    """Train the probe of one seed; the methods that read it share it."""

    stage: ClassVar[str] = "frozen_probe"
    version: ClassVar[int] = 1
    urgency: ClassVar[int] = 2
    loads_encoder: ClassVar[bool] = True

    task: TaskSpec
    seed: int

    def spec(self) -> dict[str, Any]:
        of_task = {"kind", "labels", "slots", "metric", "probe"}
        task = self.task.model_dump(mode="json", include=of_task)
        return {**super().spec(), "task": task, "seed": self.seed}

    def compute(self, encoder: Encoder, context: Context) -> None:
        from safetensors.torch import save_file

        from papa.ranking.scores.frozen import trained_probe

        with context.scratch() as scratch:
            probe = trained_probe(
                encoder,
                open_corpus(context.found[self.corpus]),
                self.task,
                self.seed,
                scratch=scratch,
                execution=context.execution,
                progress=context.progress,
            )
        with context.published() as folder:
            save_file(probe.state_dict(), folder / WEIGHTS)

    def read(self, found: ArtifactReference, encoder: Encoder, corpus: TokenisedCorpus) -> Probe:
        """The probe, on the encoder's device."""
        from safetensors.torch import load_file

        from papa.probes.evaluate import build_probe

        verify(found.folder, WEIGHTS)
        probe = build_probe(encoder, corpus, self.task, [self.seed])
        with reading(found.path):
            probe.load_state_dict(load_file(found.folder / WEIGHTS))
        return probe.requires_grad_(False).to(encoder.device)
