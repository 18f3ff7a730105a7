"""Probe: a small classifier on the frozen encoder's features scores a cell (paper, Section 3.3).

``probe`` trains and scores it while some heads are constant; ``baseline`` scores what a cell must
beat: the best single answer, and the same probe on word embeddings alone.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from papa.models.reference import EncoderReference
from papa.scores.constant_answers import best_constant_answer
from papa.scores.custom import CustomCode
from papa.scores.metrics import positive_name
from papa.spec import FeaturesSpec, TaskSpec
from papa.spec.orders import Head
from papa.tasks.cell import CellScores, ConstantHeads, ScoredSeed, save_baseline
from papa.tasks.context import Context
from papa.tasks.step import Step, stage
from papa.text.corpus import TokenisedCorpus, open_corpus

if TYPE_CHECKING:
    from papa.heads.substitutes import Substitute
    from papa.probes.features import FeatureModel

# The bodies of these stages do not use ``encoder``: ``model_of`` reads it from the step.


@stage("probe", version=9, by_seed=True)
def probe(
    context: Context,
    encoder: EncoderReference,
    text: Step,
    heads: ConstantHeads,
    task: TaskSpec,
    trained: bool,
    seeds: tuple[int, ...],
    features: FeaturesSpec,
    code: CustomCode | None = None,
) -> None:
    """Train the task's probe and score it on the validation split, once for each seed; a
    ``trained`` substitute is trained with it.

    In: the tokenised text, the substitute, head scores, and the encoder. Out: for each seed an
    artifact with its score, and what each validation row adds to it. Where: a worker; features are
    computed once for all seeds that run together.
    """
    from papa.probes.evaluate import unseen_by

    corpus = open_corpus(context.artifacts[text])
    constant_heads = heads.select(context.artifacts)
    substitute = heads.load_substitute(context, encoder, task)
    loaded = context.loaded_encoder
    scored, examples_by_seed = _train_and_score(
        context, loaded, corpus, task, seeds, features, code, substitute, constant_heads, trained
    )
    unseen_share = None
    if constant_heads and not trained:
        unseen_share = unseen_by(substitute, corpus.split("validation"))
    for step, scored_seed, examples in zip(context.steps, scored, examples_by_seed, strict=True):
        scores = CellScores(
            scores=(scored_seed,),
            positive=positive_name(task, corpus.label_names),
            unseen_share=unseen_share,
            constant_heads=constant_heads,
        )
        with context.published(step) as folder:
            scores.save(folder, [examples])


@stage("baseline", version=3, by_seed=True)
def baseline(
    context: Context,
    encoder: EncoderReference,
    text: Step,
    task: TaskSpec,
    seeds: tuple[int, ...],
    features: FeaturesSpec,
    code: CustomCode | None = None,
) -> None:
    """Score always giving one answer, and the task's probe on word embeddings alone.

    In: the tokenised text and the encoder's word embeddings. Out: for each seed an artifact with
    both scores, and what each validation row adds to them. Where: a worker.
    """
    from papa.probes.features import WordEmbeddings

    corpus = open_corpus(context.artifacts[text])
    loaded = context.loaded_encoder
    one_answer = best_constant_answer(corpus, task, len(loaded.word_embeddings), code)
    words = WordEmbeddings(loaded)
    scored, examples_by_seed = _train_and_score(context, words, corpus, task, seeds, features, code)
    for step, scored_seed, examples in zip(context.steps, scored, examples_by_seed, strict=True):
        with context.published(step) as folder:
            save_baseline(folder, one_answer, [scored_seed], [examples])


def _train_and_score(
    context: Context,
    encoder: FeatureModel,
    corpus: TokenisedCorpus,
    task: TaskSpec,
    seeds: tuple[int, ...],
    features: FeaturesSpec,
    code: CustomCode | None,
    substitute: Substitute | None = None,
    constant_heads: tuple[Head, ...] = (),
    trained: bool = False,
) -> tuple[tuple[ScoredSeed, ...], list[np.ndarray]]:
    """Train and score the task's probe. Return the score of every seed, and for each seed what each
    validation row adds to it, [rows, k].
    """
    from papa.probes.evaluate import evaluate_cell

    started = time.perf_counter()
    with context.scratch_folder() as scratch:
        scored = evaluate_cell(
            encoder,
            corpus,
            task,
            seeds,
            substitute=substitute,
            heads=constant_heads,
            trained=trained,
            features=features,
            execution=context.execution,
            scratch=scratch,
            code=code,
            progress=context.progress,
            on_epoch=context.on_epoch,
        )
    seconds = (time.perf_counter() - started) / len(seeds)
    scores = tuple(
        ScoredSeed(seed, score.score, seconds) for seed, score in zip(seeds, scored, strict=True)
    )
    return scores, [score.examples for score in scored]
