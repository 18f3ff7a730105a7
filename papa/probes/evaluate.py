"""The score of a cell: one encoder on one task, with the replacement that is active on it, or with
constant matrices that are trained together with the probe (paper, Section 5.2).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from papa.attention.constants import ConstantMatrices
from papa.attention.outputs import ConstantOutputs
from papa.attention.replacement import replaced
from papa.corpora.batches import micro_batches
from papa.corpora.corpus import TokenisedCorpus
from papa.encoders.encoder import Encoder
from papa.encoders.finite import numbers_of
from papa.probes.features import FeatureModel, check_disk, feature_bytes, features_of
from papa.probes.joint import JointGradients, train_jointly
from papa.probes.masked import MaskedProbe
from papa.probes.own_probe import MakeModule, ModuleProbe, fit_estimators, is_estimator
from papa.probes.packed import live_features
from papa.probes.probes import Probe, SequenceProbe, TokenProbe
from papa.probes.training import SeedScore, train_probes
from papa.progress import OnEpoch, Progress, ignore_epoch, ignore_progress
from papa.scores.metrics import Scored
from papa.scores.own import OwnCode, Score, loaded, scorer
from papa.spec import ExecutionSpec, FeaturesSpec, TaskSpec
from papa.spec.orders import Head

AUTHORS_DROPOUT = {"bert": 0.1, "deberta": 0.1, "deberta-v2": 0.1}
"""Dropout before the last map of the authors' sequence probes, by ``model_type``; else none."""
_OPTIMAL_RATE = 2e-3
"""The learning rate of an optimal output (Li and Janson, 2024)."""


def evaluate_cell(
    encoder: FeatureModel,
    corpus: TokenisedCorpus,
    task: TaskSpec,
    seeds: Sequence[int],
    *,
    features: FeaturesSpec,
    execution: ExecutionSpec,
    scratch: Path,
    code: OwnCode | None = None,
    progress: Progress = ignore_progress,
    on_epoch: OnEpoch = ignore_epoch,
    probe: Probe | None = None,
) -> list[SeedScore]:
    """Train the task's probe on the encoder's features and score it, once for each seed.

    The caller holds ``with replaced(encoder, …)``. Where the features of both splits fit
    ``execution.features_budget_gb`` they are stored under ``scratch`` for the time of the call: one
    pass of the encoder serves every epoch and seed. Beyond the budget, or with
    ``probe.encoder_dropout``, one pass per epoch serves every seed. Scores agree within float
    tolerance.

    Each seed has a probe, whose score does not depend on the seeds beside it. A ``probe`` of
    ``build_probe`` for the same seeds is trained in place; None builds one.
    """
    score = scorer(task, corpus.label_names, code)
    train, validation = corpus.split("train"), corpus.split("validation")
    needed = [feature_bytes(encoder, split, features.dtype) for split in (train, validation)]
    fits = sum(needed) <= execution.features_budget_gb * 1e9
    keep_train = fits and not task.probe.encoder_dropout
    scratch.mkdir(parents=True, exist_ok=True)
    if fits:
        check_disk(scratch, sum(needed) if keep_train else needed[1])
    extracted = (len(train) if keep_train else 0) + (len(validation) if fits else 0)
    total = extracted + task.probe.epochs * len(train) + len(validation)

    options: Any = {"batch_tokens": execution.batch_tokens, "dtype": features.dtype}
    with (
        features_of(
            encoder,
            train,
            scratch,
            kept=keep_train,
            dropout=task.probe.encoder_dropout,
            progress=lambda done, _: progress(done, total),
            **options,
        ) as train_source,
        features_of(
            encoder,
            validation,
            scratch,
            kept=fits,
            progress=lambda done, _: progress(extracted - len(validation) + done, total),
            **options,
        ) as validation_source,
    ):
        own = loaded(code.probe) if code else None
        if is_estimator(own):
            return fit_estimators(own, train_source, validation_source, seeds, score)
        probe = probe or build_probe(encoder, corpus, task, seeds, own)
        return train_probes(
            probe.to(encoder.device),
            train_source,
            validation_source,
            seeds=seeds,
            spec=task.probe,
            score=score,
            token_values=(encoder.layers + 1) * encoder.width,
            progress=lambda done, _: progress(extracted + done, total),
            on_epoch=on_epoch,
        )


def build_probe(
    encoder: FeatureModel,
    corpus: TokenisedCorpus,
    task: TaskSpec,
    seeds: Sequence[int],
    make: MakeModule | None = None,
) -> Probe:
    """The untrained probe of a task: the user's own, by sequence, by token, or for masked words."""
    layers, width = encoder.layers + 1, encoder.width
    if corpus.kind == "mlm":
        return MaskedProbe(
            seeds, layers=layers, width=width, word_embeddings=encoder.word_embeddings
        )
    dropout = (
        AUTHORS_DROPOUT.get(encoder.config.model_type, 0.0) if task.probe.encoder_dropout else 0.0
    )
    sequence = partial(
        SequenceProbe, seeds, layers=layers, width=width, slots=corpus.slots, dropout=dropout
    )
    if task.regression:
        return sequence(labels=1, regression=True)
    assert corpus.label_names is not None, "of a corpus with classes"
    labels = len(corpus.label_names)
    if make is not None:
        return ModuleProbe(make, seeds, layers * width, labels)
    if corpus.kind == "words":
        dtype = getattr(torch, encoder.precision)
        return TokenProbe(seeds, layers=layers, width=width, labels=labels, dtype=dtype)
    return sequence(labels=labels)


def evaluate_trained_cell(
    encoder: Encoder,
    start: ConstantMatrices | ConstantOutputs,
    heads: Sequence[Head],
    corpus: TokenisedCorpus,
    task: TaskSpec,
    seeds: Sequence[int],
    *,
    execution: ExecutionSpec,
    code: OwnCode | None = None,
    progress: Progress = ignore_progress,
    on_epoch: OnEpoch = ignore_epoch,
) -> list[SeedScore]:
    """Train constants, from ``start`` on, and a probe together, once for each seed, and score them.

    Nothing is frozen but the encoder, so there are no features to keep: every epoch runs the
    encoder. In use, rows are masked and divided by their absolute sum, since training may make
    entries negative.
    """
    score = scorer(task, corpus.label_names, code)
    scores = []
    rows = len(corpus.split("train")) * task.probe.epochs

    def shown(before: int, done: int, _: int) -> None:
        progress(before + done, len(seeds) * rows)

    for index, seed in enumerate(seeds):
        started = time.perf_counter()
        trained = nn.Parameter(start.values.to(encoder.device, copy=True))
        probe = build_probe(encoder, corpus, task, [seed]).to(encoder.device)
        with replaced(encoder, start.of(trained), heads):
            gradients = JointGradients(
                encoder, trained, probe, corpus, dropout=task.probe.encoder_dropout
            )
            train_jointly(
                encoder,
                gradients.of_parts,
                gradients.trained,
                corpus,
                spec=task.probe,
                rows=corpus.split("train").rows,
                epochs=task.probe.epochs,
                rate=task.probe.learning_rate,
                parameter_rate=_OPTIMAL_RATE if isinstance(start, ConstantOutputs) else None,
                seed=seed,
                progress=partial(shown, index * rows),
                on_epoch=on_epoch,
            )
            tokens = encoder.tokens_per_batch(execution.batch_tokens)
            result = _score(encoder, probe, corpus, score, tokens)
        seconds = time.perf_counter() - started
        scores.append(
            SeedScore(seed=seed, score=result.score, examples=result.examples, seconds=seconds)
        )
    return scores


@torch.inference_mode()
def _score(
    encoder: Encoder, probe: Probe, corpus: TokenisedCorpus, score: Score, batch_tokens: int
) -> Scored:
    split = corpus.split("validation")
    predictions, labels, lengths, rows = [], [], [], []
    for number, batch in enumerate(micro_batches(split, None, batch_tokens), 1):
        with numbers_of(f"batch {number} of the {split.name} split"):
            token_states = encoder.token_states(batch)
        features = live_features(token_states, split, batch)
        predictions.append(
            probe.predictions(features, torch.arange(len(features)))[0].cpu().numpy()
        )
        labels.append(features.labels.cpu().numpy())
        lengths.append(features.label_counts.numpy())
        rows.append(batch.rows.numpy())
    result = score(*map(np.concatenate, (predictions, labels, lengths)))
    # Batches go by length; examples of two cells are paired by their place in the split.
    return Scored(result.score, result.examples[np.argsort(np.concatenate(rows))])
