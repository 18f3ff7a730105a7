"""Stage ``baseline``: what a task's scores are worth, without any attention of the encoder."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from papa.encoders.reference import EncoderReference
from papa.progress import Progress
from papa.spec import ExecutionSpec, FeaturesSpec, TaskSpec
from papa.storage.artifacts import Address, ArtifactReference, fetched, is_complete, published, verify
from tasks.probe import features_folder, scores_of
from tasks.step import Session, Step, identity
from tasks.tokenise import open_corpus

BASELINE = "baseline.json"


@dataclass(frozen=True)
class Baseline(Step):
    """Score always giving one answer, and the task's probe on the encoder's word embeddings alone.

    Attributes:
        encoder: whose word embeddings.
        corpus: the task's tokenised text.
        task: its metric and probe.
        seeds: one probe each, the same as every cell's.
        features: in what precision features are kept.
    """

    stage: ClassVar[str] = "baseline"
    version: ClassVar[int] = 1

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

    def upstream(self) -> dict[str, str | None]:
        return {"encoder": self.encoder.digest, "corpus": self.corpus.digest}

    def run(self, session: Session, progress: Progress) -> None:
        scratch = session.store.scratch / f"features-{self.key[:16]}"
        session.pool.run(
            baseline,
            encoder=self.encoder,
            arguments={
                "corpus": self.corpus,
                "task": self.task,
                "seeds": self.seeds,
                "features": self.features,
                "execution": session.execution,
                "scratch": None if session.store.is_remote else scratch,
                "folder": self.folder(session.store),
                "metadata": self.metadata(),
            },
            progress=progress,
        )


def baseline(
    *,
    encoder: Any,
    corpus: ArtifactReference,
    task: TaskSpec,
    seeds: Sequence[int],
    features: FeaturesSpec,
    execution: ExecutionSpec,
    scratch: Path | None,
    folder: Address,
    metadata: Mapping[str, Any],
    progress: Progress,
) -> None:
    """Publish the baselines of one encoder on one task at ``folder``, unless they are there by now."""
    if is_complete(folder):
        return
    from papa.probes.evaluate import evaluate_cell
    from papa.probes.features import WordEmbeddings
    from papa.scores.baselines import best_constant_answer

    started = time.monotonic()
    tokenised = open_corpus(corpus.folder, corpus.digest)
    constant = best_constant_answer(tokenised, task, len(encoder.word_embeddings))
    with features_folder(scratch) as place:
        scores = evaluate_cell(
            WordEmbeddings(encoder),
            tokenised,
            task,
            seeds,
            features=features,
            execution=execution,
            scratch=place,
            progress=progress,
        )
    seconds = time.monotonic() - started
    document = {
        "always_one_answer": {"score": constant.score, "answer": constant.answer},
        "word_embeddings": scores_of(scores),
        "seconds": seconds,
    }
    with published(folder, {**metadata, "seconds": seconds}) as published_folder:
        (published_folder / BASELINE).write_text(json.dumps(document, indent=1) + "\n")


def read_baseline(address: Address) -> dict[str, Any]:
    """What ``baseline`` published: always_one_answer (score, answer), word_embeddings (seed, score, seconds), seconds.

    Raises:
        ArtifactError: the artifact is damaged.
    """
    folder = fetched(address)
    verify(folder)
    return json.loads((folder / BASELINE).read_text())
