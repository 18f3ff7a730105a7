"""Stage ``probe``: the scores of one cell of a study, all seeds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import TypeAdapter

from papa.encoders.reference import EncoderReference
from papa.progress import Progress
from papa.spec import FeaturesSpec, TaskSpec
from papa.storage.artifacts import Address, ArtifactReference, check_form, fetched, reading, verify
from tasks.step import Context, Session, WorkerStep, identity
from tasks.tokenise import open_corpus

if TYPE_CHECKING:
    from papa.attention.constants import ConstantMatrices
    from papa.corpora.corpus import TokenisedCorpus
    from papa.encoders.encoder import Encoder
    from papa.probes.features import FeatureModel
    from papa.probes.training import SeedScore

SCORES = "scores.json"
EXAMPLES = "examples.safetensors"


class ScoringStep(WorkerStep):
    """A step that trains and scores the task's probe for every seed: ``Probe`` and ``Baseline``."""

    encoder: EncoderReference
    corpus: ArtifactReference
    task: TaskSpec
    seeds: tuple[int, ...]
    features: FeaturesSpec

    def spec(self) -> dict[str, Any]:
        return {
            "encoder": identity(self.encoder),
            "task": self.task.model_dump(
                mode="json", include={"kind", "labels", "slots", "metric", "positive", "probe"}
            ),
            "seeds": list(self.seeds),
            "features": self.features.model_dump(mode="json"),
        }

    def run(self, session: Session, progress: Progress) -> None:
        on_epoch = partial(session.on_epoch, self.name)
        self.run_on_worker(session, progress, encoder=self.encoder, on_epoch=on_epoch)

    def scores(self, encoder: FeatureModel, corpus: TokenisedCorpus, context: Context) -> list[SeedScore]:
        """The scores of probes on the frozen ``encoder``, one for each seed."""
        from papa.probes.evaluate import evaluate_cell

        with context.scratch() as scratch:
            return evaluate_cell(
                encoder,
                corpus,
                self.task,
                self.seeds,
                features=self.features,
                execution=context.execution,
                scratch=scratch,
                progress=context.progress,
                on_epoch=context.on_epoch,
            )


@dataclass(frozen=True)
class Probe(ScoringStep):
    """Train and score the task's probe while ``heads`` are constant.

    The key is on the set of constant heads, so cells that cannot differ share it (``papa.spec.cells``).

    Attributes:
        encoder: whose features.
        corpus: the task's tokenised text.
        constants: the constant matrices; None where no head is constant.
        task: its metric and probe.
        heads: the constant heads as (layer, head).
        trained: whether the constant matrices are trained with the probe, from ``constants`` on.
        seeds: one probe each.
        features: in what precision features are kept.
        rankings: those whose mean λ ``heads`` were taken by; none where no training led to them.
    """

    stage: ClassVar[str] = "probe"
    version: ClassVar[int] = 5

    encoder: EncoderReference
    corpus: ArtifactReference
    constants: ArtifactReference | None
    task: TaskSpec
    heads: tuple[tuple[int, int], ...]
    trained: bool
    seeds: tuple[int, ...]
    features: FeaturesSpec
    rankings: tuple[ArtifactReference, ...] = ()

    def spec(self) -> dict[str, Any]:
        return {
            **super().spec(),
            "heads": sorted(map(list, self.heads)),
            "trained": self.trained and bool(self.heads),
        }

    def upstream(self) -> dict[str, str | None]:
        return {
            "encoder": self.encoder.digest,
            "corpus": self.corpus.digest,
            "constants": self.constants.digest if self.constants and self.heads else None,
        }

    def origins(self) -> tuple[str, ...]:
        return tuple(one.digest for one in self.rankings)

    def compute(self, encoder: Encoder, context: Context) -> None:
        import numpy as np
        from safetensors.numpy import save_file

        from papa.probes.cell import score_cell

        with context.scratch() as scratch:
            cell = score_cell(
                encoder,
                self._matrices() if self.heads else None,
                self.heads,
                open_corpus(self.corpus.folder, self.corpus.digest),
                self.task,
                self.seeds,
                trained=self.trained,
                features=self.features,
                execution=context.execution,
                scratch=scratch,
                progress=context.progress,
                on_epoch=context.on_epoch,
            )
        found = ProbeScores(
            scores=ScoredSeed.of(cell.scores),
            positive=cell.positive,
            unseen_share=cell.unseen_share,
            constant_heads=cell.constant_heads,
            heads=cell.heads,
            seconds=context.seconds,
            device=str(encoder.device),
        )
        with context.published() as folder:
            found.save(folder)
            save_file({"examples": np.stack([one.examples for one in cell.scores])}, folder / EXAMPLES)

    def _matrices(self) -> ConstantMatrices:
        from papa.attention.constants import ConstantMatrices

        assert self.constants is not None
        return ConstantMatrices.load(self.constants.folder, encoder=self.encoder, slots=self.task.slots)


@dataclass(frozen=True)
class ScoredSeed:
    """The score of one seed.

    Attributes:
        seed: of the probe.
        score: on the validation split.
        seconds: its share of training and scoring.
    """

    seed: int
    score: float
    seconds: float

    @classmethod
    def of(cls, scores: Sequence[SeedScore]) -> tuple[ScoredSeed, ...]:
        """Of every seed, without its examples."""
        return tuple(cls(one.seed, one.score, one.seconds) for one in scores)


@dataclass(frozen=True)
class ProbeScores:
    """What the stage found: the file ``scores.json``.

    Attributes:
        scores: one per seed.
        positive: the class that F1 is of; None for other metrics.
        unseen_share: of the entries of C that validation rows read, the share that the average never saw; None
            without replacement, and where C was trained.
        constant_heads: as (layer, head), sorted.
        heads: the encoder's number of heads.
        seconds: that the step took.
        device: that it ran on.
    """

    scores: tuple[ScoredSeed, ...]
    positive: str | None
    unseen_share: float | None
    constant_heads: tuple[tuple[int, int], ...]
    heads: int
    seconds: float
    device: str

    def save(self, folder: Path) -> None:
        """Write it into an artifact."""
        (folder / SCORES).write_text(json.dumps(asdict(self), indent=1) + "\n")


def read_scores(address: Address) -> ProbeScores:
    """The scores of a finished probing.

    Raises:
        ArtifactError: the artifact is damaged.
    """
    folder = fetched(address)
    verify(folder, SCORES)
    with reading(folder):
        return TypeAdapter(ProbeScores).validate_python(json.loads((folder / SCORES).read_text()))


def read_examples(address: Address) -> Any:
    """What each validation row adds to each seed's score, float64 [seeds, rows, k]: ``papa.scores.examples``.

    Raises:
        ArtifactError: the artifact is damaged.
    """
    from safetensors.numpy import load_file

    folder = fetched(address)
    verify(folder)
    with reading(folder):
        examples = load_file(folder / EXAMPLES)["examples"]
        check_form(examples=((examples.ndim, examples.dtype), (3, float)))
        return examples
