"""Stage ``baseline``: what a task's scores are worth, without any attention of the encoder."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, ClassVar

from pydantic import TypeAdapter

from papa.encoders.reference import EncoderReference
from papa.spec import FeaturesSpec, TaskSpec
from papa.storage.artifacts import Address, ArtifactReference, fetched, reading, verify
from tasks.probe import ScoredSeed, ScoringStep
from tasks.step import Context
from tasks.tokenise import open_corpus

if TYPE_CHECKING:
    from papa.encoders.encoder import Encoder
    from papa.scores.baselines import ConstantAnswer

BASELINE = "baseline.json"


@dataclass(frozen=True)
class Baseline(ScoringStep):
    """Score always giving one answer, and the task's probe on the encoder's word embeddings alone.

    Attributes:
        encoder: whose word embeddings.
        corpus: the task's tokenised text.
        task: its metric and probe.
        seeds: one probe each, the same as every cell's.
        features: in what precision features are kept.
    """

    stage: ClassVar[str] = "baseline"
    version: ClassVar[int] = 2

    encoder: EncoderReference
    corpus: ArtifactReference
    task: TaskSpec
    seeds: tuple[int, ...]
    features: FeaturesSpec

    def upstream(self) -> dict[str, str | None]:
        return {"encoder": self.encoder.digest, "corpus": self.corpus.digest}

    def compute(self, encoder: Encoder, context: Context) -> None:
        from papa.probes.features import WordEmbeddings
        from papa.scores.baselines import best_constant_answer

        corpus = open_corpus(self.corpus.folder, self.corpus.digest)
        constant = best_constant_answer(corpus, self.task, len(encoder.word_embeddings))
        scores = self.scores(WordEmbeddings(encoder), corpus, context)
        found = BaselineScores(constant, ScoredSeed.of(scores), context.seconds)
        with context.published() as folder:
            (folder / BASELINE).write_text(json.dumps(asdict(found), indent=1) + "\n")


@dataclass(frozen=True)
class BaselineScores:
    """What the stage found: the file ``baseline.json``.

    Attributes:
        always_one_answer: the best score that one answer for every example gets.
        word_embeddings: the probe's scores on word embeddings, one per seed.
        seconds: that the step took.
    """

    always_one_answer: ConstantAnswer
    word_embeddings: tuple[ScoredSeed, ...]
    seconds: float


def read_baseline(address: Address) -> BaselineScores:
    """The scores of a finished baseline.

    Raises:
        ArtifactError: the artifact is damaged.
    """
    from papa.scores.baselines import ConstantAnswer

    folder = fetched(address)
    verify(folder)
    with reading(folder):
        document = json.loads((folder / BASELINE).read_text())
        return BaselineScores(
            always_one_answer=TypeAdapter(ConstantAnswer).validate_python(document["always_one_answer"]),
            word_embeddings=TypeAdapter(tuple[ScoredSeed, ...]).validate_python(document["word_embeddings"]),
            seconds=float(document["seconds"]),
        )
