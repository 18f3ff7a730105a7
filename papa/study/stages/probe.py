"""Stages ``probe``, the scores of one cell of a study, and ``baseline``, what they are worth."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter
from safetensors.numpy import load_file, save_file

from papa.encoders.reference import EncoderReference
from papa.ranking.orders import head_order, scored_by
from papa.scores.answers import ConstantAnswer, best_constant_answer
from papa.scores.metrics import positive_name
from papa.scores.own import OwnCode
from papa.spec import FeaturesSpec, Order, TaskSpec
from papa.spec.orders import Head
from papa.storage.artifacts import ArtifactReference, verified
from papa.study.stages.constants import Constants
from papa.study.stages.rank import read_head_scores
from papa.study.step import Context, Step, stage

SCORES, BASELINE, EXAMPLES = "scores.json", "baseline.json", "examples.safetensors"


@dataclass(frozen=True)
class ConstantHeads:
    """Which heads of an encoder are constant in a cell, and how.

    Attributes:
        size: layers, and heads in each.
        constants: None where no head is constant.
        order: which heads become constant first; None where it changes nothing.
        count: how many are.
        rankings: those whose mean the order follows, by seed; none where it follows no scores.
        draw: what a random order is drawn from; empty for another.
    """

    size: tuple[int, int]
    constants: Constants | None = None
    order: Order | None = None
    count: int = 0
    rankings: Mapping[int, Step] = field(default_factory=dict)
    draw: tuple[int, ...] = ()

    def ranked(self, found: Mapping[Step, ArtifactReference]) -> list[Head]:
        """All heads as (layer, head), in the head order."""
        order: Order = self.order or "first_to_last"  # Any, where it changes nothing.
        rankings = {seed: found[ranking] for seed, ranking in self.rankings.items()}
        method = scored_by(order)
        scores = read_head_scores(method, rankings).mean if method else None
        return head_order(order, scores, *self.size, self.draw)

    def chosen(self, found: Mapping[Step, ArtifactReference]) -> tuple[Head, ...]:
        """The constant ones: the first of them, sorted."""
        return tuple(sorted(self.ranked(found)[: self.count]))

    def read(self, run: Context, encoder: EncoderReference, task: TaskSpec) -> Any:
        """What they put out, as of ``Constants``; None where no head is constant."""
        if self.constants is None:
            return None
        source = self.constants.source
        return self.constants.read(run.found[source] if source else None, encoder, task)


@stage("probe", version=6)
def probe(
    run: Context,
    encoder: EncoderReference,
    corpus: Step,
    heads: ConstantHeads,
    task: TaskSpec,
    trained: bool,
    seeds: tuple[int, ...],
    features: FeaturesSpec,
    code: OwnCode | None = None,
) -> None:
    """Train and score the task's probe for every seed while some heads are constant. Constants that
    are ``trained`` are so with the probe, from those of ``heads`` on.
    """
    from papa.probes.evaluate import evaluate_cell, unseen_by

    text, chosen = run.corpus(corpus), heads.chosen(run.found)
    read = heads.read(run, encoder, task)
    with run.asked(features=features, code=code, on_epoch=run.on_epoch) as asked:
        how = {"constants": read, "heads": chosen, "trained": trained, **asked}
        scores = evaluate_cell(run.encoder, text, task, seeds, **how)
    unseen = None if trained or not chosen else unseen_by(read, text.split("validation"))
    found = ProbeScores(
        scores=tuple(ScoredSeed(one.seed, one.score, one.seconds) for one in scores),
        positive=positive_name(task, text.label_names),
        unseen_share=unseen,
        constant_heads=chosen,
        heads=encoder.layers * encoder.heads,
        seconds=run.seconds,
        device=str(run.encoder.device),
    )
    with run.published() as folder:
        found.save(folder, [score.examples for score in scores])


@stage("baseline", version=2)
def baseline(
    run: Context,
    encoder: EncoderReference,
    corpus: Step,
    task: TaskSpec,
    seeds: tuple[int, ...],
    features: FeaturesSpec,
    code: OwnCode | None = None,
) -> None:
    """Score always giving one answer, and the task's probe on word embeddings alone."""
    from papa.probes.evaluate import evaluate_cell
    from papa.probes.features import WordEmbeddings

    text = run.corpus(corpus)
    constant = best_constant_answer(text, task, len(run.encoder.word_embeddings), code)
    with run.asked(features=features, code=code, on_epoch=run.on_epoch) as asked:
        scores = evaluate_cell(WordEmbeddings(run.encoder), text, task, seeds, **asked)
    document = {
        "always_one_answer": {"score": constant.score, "answer": constant.answer},
        "word_embeddings": [
            {name: getattr(scored, name) for name in ("seed", "score", "seconds")}
            for scored in scores
        ],
        "seconds": run.seconds,
    }
    words = np.stack([scored.examples for scored in scores])
    examples = {"always_one_answer": constant.examples, "word_embeddings": words}
    with run.published() as folder:
        (folder / BASELINE).write_text(json.dumps(document, indent=1) + "\n")
        save_file(examples, folder / EXAMPLES)


@dataclass(frozen=True)
class ScoredSeed:
    """The score of one seed, and its share of the seconds of training and scoring."""

    seed: int
    score: float
    seconds: float


@dataclass(frozen=True)
class ProbeScores:
    """The file ``scores.json`` of a probe, or of a model's own head.

    Attributes:
        positive: the class that F1 is of; None for other metrics.
        unseen_share: of the entries of C that validation rows read, the share that the average
            never saw; None without replacement, and where C was trained.
        constant_heads: as (layer, head), sorted.
        classes: which class of the task is which of the model's own head; empty for a probe.
    """

    scores: tuple[ScoredSeed, ...]
    positive: str | None
    unseen_share: float | None
    constant_heads: tuple[Head, ...]
    heads: int
    seconds: float
    device: str
    classes: str = ""

    def save(self, folder: Path, examples: Iterable[np.ndarray]) -> None:
        """Write it into an artifact, and what each validation row adds to each seed's score."""
        (folder / SCORES).write_text(json.dumps(asdict(self), indent=1) + "\n")
        save_file({"examples": np.stack([*examples])}, folder / EXAMPLES)


def read_scores(made: ArtifactReference) -> ProbeScores:
    """The scores of a finished probing."""
    folder = verified(made, SCORES)
    return TypeAdapter(ProbeScores).validate_json((folder / SCORES).read_text())


def read_examples(made: ArtifactReference) -> np.ndarray:
    """What each validation row adds to each seed's score, float64 [seeds, rows, k]
    (``papa.scores.metrics``).
    """
    folder = verified(made, EXAMPLES)
    return load_file(folder / EXAMPLES)["examples"]


def read_baseline(
    made: ArtifactReference,
) -> tuple[ConstantAnswer, tuple[ScoredSeed, ...], np.ndarray]:
    """What a finished baseline found: always one answer; on word embeddings the scores by seed, and
    what each validation row adds to them, float64 [seeds, rows, k].
    """
    folder = verified(made, BASELINE, EXAMPLES)
    document = json.loads((folder / BASELINE).read_text())
    examples = load_file(folder / EXAMPLES)
    seeds = TypeAdapter(tuple[ScoredSeed, ...]).validate_python(document["word_embeddings"])
    answer = document["always_one_answer"]
    constant = ConstantAnswer(answer["score"], examples["always_one_answer"], answer["answer"])
    return constant, seeds, examples["word_embeddings"]
