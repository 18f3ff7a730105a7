"""Constant matrices that are trained with the probe (paper, Section 5.2): the best that constants could do."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import nn

from papa.attention.constants import ConstantMatrices
from papa.attention.replacement import Head, replaced
from papa.corpora.compact import compact_batches
from papa.corpora.corpus import TokenizedCorpus
from papa.encoders.encoder import Encoder
from papa.probes.evaluate import build_probe
from papa.probes.joint import JointGradients, train_jointly
from papa.probes.live import live_features
from papa.probes.probes import Probe
from papa.probes.training import SeedScore
from papa.progress import Progress, silent
from papa.scores.metrics import Scored, positive_class, scored
from papa.spec import ExecutionSpec, FeaturesSpec, TaskSpec


def evaluate_trained_cell(
    encoder: Encoder,
    start: ConstantMatrices,
    heads: Sequence[Head],
    corpus: TokenizedCorpus,
    task: TaskSpec,
    seeds: Sequence[int],
    *,
    features: FeaturesSpec,
    execution: ExecutionSpec,
    scratch: Path,
    progress: Progress = silent,
) -> list[SeedScore]:
    """Train constant matrices and probe together, once for each seed, and score them.

    Nothing is frozen but the encoder, so there are no features to keep: every epoch runs the encoder. In use,
    rows are masked and divided by their absolute sum, since training may make entries negative.

    Args:
        encoder: frozen; as before after the call.
        start: the matrices that training starts from.
        heads: (layer, head) of the constant heads.
        corpus: both splits of the task.
        task: its metric and probe.
        seeds: a probe and a set of matrices each.
        features, scratch: unused; a cell of any kind is called alike.
        execution: batch_tokens for scoring.
        progress: told of training rows, over all seeds.

    Returns:
        One score a seed, in the order of ``seeds``.
    """
    positive_class(task, corpus.label_names)
    scores = []
    rows = len(corpus.split("train")) * task.probe.epochs
    for index, seed in enumerate(seeds):
        started = time.perf_counter()
        matrices = nn.Parameter(start.matrices.to(encoder.device, copy=True))
        probe = build_probe(encoder, corpus, task, [seed]).to(encoder.device)
        with replaced(encoder, ConstantMatrices(matrices, start.seen, "trained"), heads):
            gradients = JointGradients(encoder, matrices, probe, corpus, dropout=task.probe.encoder_dropout)
            train_jointly(
                gradients.each,
                gradients.trained,
                corpus,
                spec=task.probe,
                rows=corpus.split("train").rows,
                epochs=task.probe.epochs,
                rate=task.probe.learning_rate,
                seed=seed,
                token_values=(encoder.layers + 1) * encoder.width,
                on_gpu=encoder.device.type != "cpu",
                progress=partial(_told, progress, index * rows, len(seeds) * rows),
            )
            found = _score(encoder, probe, corpus, task, encoder.tokens_a_batch(execution.batch_tokens))
        seconds = time.perf_counter() - started
        scores.append(SeedScore(seed=seed, score=found.score, examples=found.examples, seconds=seconds))
    return scores


def _told(progress: Progress, before: int, total: int, done: int, _: int) -> None:
    progress(before + done, total)


@torch.inference_mode()
def _score(encoder: Encoder, probe: Probe, corpus: TokenizedCorpus, task: TaskSpec, batch_tokens: int) -> Scored:
    split = corpus.split("validation")
    predictions, labels, lengths, rows = [], [], [], []
    for batch in compact_batches(split, None, batch_tokens):
        features = live_features(encoder.token_states(batch), split, batch)
        predictions.append(probe.predictions(features, torch.arange(len(features)))[0].cpu().numpy())
        labels.append(features.labels.cpu().numpy())
        lengths.append(features.lengths.numpy() if features.token_labels else np.ones(len(features), np.int64))
        rows.append(batch.rows.numpy())
    found = scored(
        task.metric,
        np.concatenate(predictions),
        np.concatenate(labels),
        corpus.label_names,
        np.concatenate(lengths),
        positive_class(task, corpus.label_names),
    )
    # Batches go by length; examples of two cells are paired by their place in the split.
    return Scored(found.score, found.examples[np.argsort(np.concatenate(rows))])
