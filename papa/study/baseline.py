"""Stage ``baseline``: what a task's scores are worth, without any attention of the encoder."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, ClassVar

from pydantic import TypeAdapter

from papa.scores.own import OwnCode
from papa.spec import FeaturesSpec, TaskSpec
from papa.storage.artifacts import Address, ArtifactReference, check_form, opened
from papa.study.probe import EXAMPLES, ScoredSeed, ScoringStep
from papa.study.step import Context
from papa.study.tokenise import open_corpus

if TYPE_CHECKING:
    import numpy as np

    from papa.encoders.encoder import Encoder
    from papa.scores.baselines import ConstantAnswer

BASELINE = "baseline.json"


@dataclass(frozen=True, eq=False)
class Baseline(ScoringStep):
    """Score always giving one answer, and the task's probe on word embeddings alone."""

    stage: ClassVar[str] = "baseline"
    version: ClassVar[int] = 2

    task: TaskSpec
    seeds: tuple[int, ...]
    features: FeaturesSpec
    code: OwnCode | None = field(default=None, kw_only=True)

    def compute(self, encoder: Encoder, context: Context) -> None:
        import numpy as np
        from safetensors.numpy import save_file

        from papa.probes.features import WordEmbeddings
        from papa.scores.baselines import best_constant_answer

        corpus = open_corpus(context.found[self.corpus])
        vocabulary = len(encoder.word_embeddings)
        constant = best_constant_answer(corpus, self.task, vocabulary, self.code)
        scores = self.scores(WordEmbeddings(encoder), corpus, context)
        document = {
            "always_one_answer": {"score": constant.score, "answer": constant.answer},
            "word_embeddings": [asdict(scored) for scored in ScoredSeed.of(scores)],
            "seconds": context.seconds,
        }
        examples = {
            "always_one_answer": constant.examples,
            "word_embeddings": np.stack([scored.examples for scored in scores]),
        }
        with context.published() as folder:
            (folder / BASELINE).write_text(json.dumps(document, indent=1) + "\n")
            save_file(examples, folder / EXAMPLES)


@dataclass(frozen=True)
class BaselineScores:
    """What the stage found: ``baseline.json`` and, of ``examples.safetensors``, what each
    validation row adds to the scores on word embeddings, float64 [seeds, rows, k].
    """

    always_one_answer: ConstantAnswer
    word_embeddings: tuple[ScoredSeed, ...]
    word_examples: np.ndarray
    seconds: float


def read_baseline(found: ArtifactReference | Address) -> BaselineScores:
    """The scores of a finished baseline."""
    from safetensors.numpy import load_file

    from papa.scores.baselines import ConstantAnswer

    with opened(found, BASELINE, EXAMPLES) as folder:
        document = json.loads((folder / BASELINE).read_text())
        examples = load_file(folder / EXAMPLES)
        answer, words = document["always_one_answer"], examples["word_embeddings"]
        of_answer = examples["always_one_answer"]
        embeddings = TypeAdapter(tuple[ScoredSeed, ...]).validate_python(
            document["word_embeddings"]
        )
        expected = (float, (len(embeddings), *of_answer.shape))
        check_form(examples=((words.dtype, words.shape), expected))
        return BaselineScores(
            always_one_answer=ConstantAnswer(
                score=TypeAdapter(float).validate_python(answer["score"]),
                examples=of_answer,
                answer=TypeAdapter(str | None).validate_python(answer["answer"]),
            ),
            word_embeddings=embeddings,
            word_examples=words,
            seconds=float(document["seconds"]),
        )
