"""What scores a cell: stage ``probe``, or of a model's own head ``answers``, what it answers, and
``own``, what that scores; and stages ``baseline`` and ``one_answer``, what scores are worth.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter
from safetensors.numpy import load_file, save_file

from papa.models.reference import EncoderReference
from papa.ranking.orders import head_order, scored_by
from papa.scores.answers import ConstantAnswer, best_constant_answer
from papa.scores.metrics import positive_name
from papa.scores.own import OwnCode
from papa.spec import FeaturesSpec, Order, TaskSpec
from papa.spec.orders import Head
from papa.spec.task import LOSS
from papa.storage.artifacts import ArtifactReference, verified
from papa.tasks.substitutes import Constants
from papa.tasks.rank import read_head_scores
from papa.tasks.step import Context, Step, stage

SCORES, BASELINE, EXAMPLES = "scores.json", "baseline.json", "examples.safetensors"
ANSWERS, ABOUT = "answers.safetensors", "answers.json"


@dataclass(frozen=True)
class ConstantHeads:
    """Which heads of an encoder of ``size`` (layers, heads in each) are constant in a cell, and
    how: the first ``count`` of an order, None where it changes nothing, which follows the mean of
    its ``rankings`` by seed, or is drawn from ``draw``, if either.
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
        own = self.constants
        return own and own.read(run.found[own.source] if own.source else None, encoder, task)


@stage("probe", version=8, by_seed=True)
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
    """Train and score the task's probe for every seed; ``trained`` constants are so with it."""
    from papa.probes.evaluate import unseen_by

    text, chosen = run.corpus(corpus), heads.chosen(run.found)
    read = heads.read(run, encoder, task)
    how = {"constants": read, "heads": chosen, "trained": trained}
    with run.asked(features=features, code=code, on_epoch=run.on_epoch, **how) as asked:
        scored, examples = _evaluated(run.encoder, text, task, seeds, **asked)
    unseen = None if trained or not chosen else unseen_by(read, text.split("validation"))
    count, positive = encoder.layers * encoder.heads, positive_name(task, text.label_names)
    for step, own, of_rows in zip(run.members, scored, examples, strict=True):
        with run.published(step) as folder:
            ProbeScores((own,), positive, unseen, chosen, count).save(folder, [of_rows])


@stage("baseline", version=3, by_seed=True)
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
    from papa.probes.features import WordEmbeddings

    text = run.corpus(corpus)
    constant = best_constant_answer(text, task, len(run.encoder.word_embeddings), code)
    with run.asked(features=features, code=code, on_epoch=run.on_epoch) as asked:
        scored, words = _evaluated(WordEmbeddings(run.encoder), text, task, seeds, **asked)
    for step, own, of_rows in zip(run.members, scored, words, strict=True):
        with run.published(step) as folder:
            _save_baseline(folder, constant, [own], [of_rows])


@stage("one_answer", version=1)
def one_answer(run: Context, corpus: Step, task: TaskSpec, code: OwnCode | None = None) -> None:
    """Score always giving one answer, which is all that a model's own head is compared with."""
    constant = best_constant_answer(run.corpus(corpus), task, 0, code)
    with run.published() as folder:
        _save_baseline(folder, constant)


def _save_baseline(
    folder: Path,
    constant: ConstantAnswer,
    scored: Sequence[ScoredSeed] = (),
    words: Sequence[np.ndarray] = (),
) -> None:
    """Write what always one answer scores, and the seeds of a probe on word embeddings, if any."""
    document = {
        "always_one_answer": {"score": constant.score, "answer": constant.answer},
        "word_embeddings": [asdict(seed) for seed in scored],
    }
    examples = {"always_one_answer": constant.examples, "word_embeddings": np.array(words)}
    (folder / BASELINE).write_text(json.dumps(document, indent=1) + "\n")
    save_file(examples, folder / EXAMPLES)


def _evaluated(
    encoder: Any, text: Any, task: TaskSpec, seeds: tuple[int, ...], **asked: Any
) -> tuple[tuple[ScoredSeed, ...], list[np.ndarray]]:
    """The score of every seed, and what each validation row adds to it."""
    from papa.probes.evaluate import evaluate_cell

    started = time.perf_counter()
    found = evaluate_cell(encoder, text, task, seeds, **asked)
    seconds, each = (time.perf_counter() - started) / len(seeds), zip(seeds, found, strict=True)
    scored = tuple(ScoredSeed(seed, one.score, seconds) for seed, one in each)
    return scored, [one.examples for one in found]


@stage("answers", version=3)
def answers(
    run: Context,
    encoder: EncoderReference,
    corpus: Step,
    heads: ConstantHeads,
    task: TaskSpec,
    code: OwnCode | None = None,
) -> None:
    """Have a model's own head answer the validation rows while some heads are constant."""
    from papa.probes.evaluate import unseen_by
    from papa.probes.own import class_names
    from papa.scores.answers import class_ids, classes_told

    own_head, read = run.own_model(task, encoder), heads.read(run, encoder, task)
    text, chosen, own = run.corpus(corpus), heads.chosen(run.found), class_names(own_head.model)
    split, names, score = text.split("validation"), text.label_names, code.score if code else None
    classes_told(names, own, task)  # Refused before it runs.
    asked: Any = {"score": score, "progress": run.progress}
    asked["ids"] = class_ids(names, own, task) if score and names else None
    found = own_head.answers(split, read, chosen, **asked)
    about = {"classes": own, "constant_heads": chosen, "unseen_share": unseen_by(read, split)}
    with run.published() as folder:
        (folder / ABOUT).write_text(json.dumps(about) + "\n")
        save_file(found, folder / ANSWERS)


def read_answers(made: ArtifactReference) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a finished step ``answers``, and about it: classes, constant heads, unseen share."""
    folder = verified(made, ANSWERS, ABOUT)
    return load_file(folder / ANSWERS), json.loads((folder / ABOUT).read_text())


@stage("own", version=2)
def own(
    run: Context,
    corpus: Step,
    heads: ConstantHeads,
    answers: Step,
    original: Step,
    task: TaskSpec,
    seeds: tuple[int, ...],
    code: OwnCode | None = None,
) -> None:
    """Score the answers of a model's own head as those of a probe; the same for all seeds."""
    from papa.scores.answers import classes_told, own_score, same_answer

    text = run.corpus(corpus)
    (before, _), (after, about) = (read_answers(run.found[step]) for step in (original, answers))
    names, classes = text.label_names, tuple(about["classes"])
    scored = own_score(task, before, after, text.split("validation"), names, classes, code)
    document = ProbeScores(
        scores=tuple(ScoredSeed(seed, scored.score, 0.0) for seed in seeds),
        positive=positive_name(task, names),
        unseen_share=about["unseen_share"],
        constant_heads=tuple(map(tuple, about["constant_heads"])),
        heads=heads.size[0] * heads.size[1],
        classes=classes_told(names, classes, task),
        same_answer="" if task.metric == LOSS else same_answer(after, classes),
    )
    with run.published() as folder:
        document.save(folder, [scored.examples] * len(seeds))


@dataclass(frozen=True)
class ScoredSeed:
    """The score of one seed, and its share of the seconds of training and scoring."""

    seed: int
    score: float
    seconds: float


@dataclass(frozen=True)
class ProbeScores:
    """The file ``scores.json`` of a probe, or of a model's own head: ``positive`` is the class that
    F1 is of; ``unseen_share``, of the entries of C that validation rows read, what the average
    never saw, None without replacement and where C was trained; ``constant_heads`` (layer, head),
    sorted; ``classes`` tells which class of the task is which of the model's own head;
    ``same_answer`` is what that head answers to every example, "" where answers differ.
    """

    scores: tuple[ScoredSeed, ...]
    positive: str | None
    unseen_share: float | None
    constant_heads: tuple[Head, ...]
    heads: int
    classes: str = ""
    same_answer: str = ""

    def save(self, folder: Path, examples: Iterable[np.ndarray]) -> None:
        """Write it into an artifact, and what each validation row adds to each seed's score."""
        (folder / SCORES).write_text(json.dumps(asdict(self), indent=1) + "\n")
        save_file({"examples": np.stack([*examples])}, folder / EXAMPLES)


def read_scores(made: ArtifactReference) -> ProbeScores:
    """The scores of a finished probing."""
    return TypeAdapter(ProbeScores).validate_json((verified(made, SCORES) / SCORES).read_bytes())


def read_examples(made: ArtifactReference) -> np.ndarray:
    """What each validation row adds to each seed's score, float64 [seeds, rows, k]."""
    return load_file(verified(made, EXAMPLES) / EXAMPLES)["examples"]


def read_baseline(
    made: ArtifactReference,
) -> tuple[ConstantAnswer, tuple[ScoredSeed, ...], np.ndarray]:
    """What a finished baseline found: always one answer; on word embeddings as of a probe, nothing
    of ``one_answer``.
    """
    folder = verified(made, BASELINE, EXAMPLES)
    document = json.loads((folder / BASELINE).read_text())
    examples = load_file(folder / EXAMPLES)
    seeds = TypeAdapter(tuple[ScoredSeed, ...]).validate_python(document["word_embeddings"])
    answer = document["always_one_answer"]
    constant = ConstantAnswer(answer["score"], examples["always_one_answer"], answer["answer"])
    return constant, seeds, examples["word_embeddings"]
