"""The score of a cell of a study: a probe on the features of an encoder some of whose heads are
constant, or the probe and the constants trained together (paper, Sections 3.3 and 5.2).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import nn

from papa.attention.constants import ConstantMatrices, EntryCounts
from papa.attention.outputs import ConstantOutputs
from papa.attention.replacement import replaced
from papa.corpora.batches import micro_batches
from papa.corpora.corpus import TokenisedCorpus, TokenisedSplit
from papa.probes.features import FeatureModel, FeatureSource, features_of, window_of
from papa.probes.own_probe import FittedProbe, MakeModule, ModuleProbe, is_estimator
from papa.probes.probes import MaskedProbe, Probe, SequenceProbe, TokenProbe
from papa.probes.training import JointLearner, ProbeLearner, probe_loss, train
from papa.progress import OnEpoch, Progress, ignore_epoch, ignore_progress
from papa.scores.metrics import Scored
from papa.scores.own import OwnCode, Score, loaded, scorer
from papa.spec import ExecutionSpec, FeaturesSpec, Precision, TaskSpec
from papa.spec.orders import Head

AUTHORS_DROPOUT = {"bert": 0.1, "deberta": 0.1, "deberta-v2": 0.1}
"""Dropout before the last map of the authors' sequence probes, by ``model_type``; else none."""
_OPTIMAL_RATE = 2e-3
"""The learning rate of an optimal output (Li and Janson, 2024)."""
_SCORED_ROWS = 32
"""Rows scored at a time."""
_COUNTED_TOKENS = 4096
"""Tokens of rows whose entries are counted at a time."""


@dataclass(frozen=True)
class SeedScore:
    """The score of a cell for one seed, after the last epoch on the validation split; what each of
    its rows adds to it (``papa.scores.metrics``); and the seed's share of the cell's time.
    """

    seed: int
    score: float
    examples: Float[np.ndarray, "rows k"]
    seconds: float


def unseen_by(constants: object, split: TokenisedSplit) -> float | None:
    """Of the entries of C that the rows of a split read, the share that the average never saw; None
    for other constants.
    """
    if not isinstance(constants, ConstantMatrices):
        return None
    entries = EntryCounts()
    for batch in micro_batches(split, None, _COUNTED_TOKENS):
        entries.add(constants.seen, batch)
    return entries.unseen_share


def evaluate_cell(
    encoder: FeatureModel,
    corpus: TokenisedCorpus,
    task: TaskSpec,
    seeds: Sequence[int],
    *,
    constants: Any = None,
    heads: Sequence[Head] = (),
    trained: bool = False,
    features: FeaturesSpec,
    execution: ExecutionSpec,
    scratch: Path,
    code: OwnCode | None = None,
    progress: Progress = ignore_progress,
    on_epoch: OnEpoch = ignore_epoch,
) -> list[SeedScore]:
    """Train the task's probe and score it, once for each seed, while ``heads`` are constant, or of
    the layer before (by ``papa.spec.study.REUSED``), beside those that a block around the call
    replaces. A seed's score does not depend on the seeds beside it.

    Args:
        constants: ``ConstantMatrices``, or what else ``papa.attention.replacement`` takes.
        trained: whether they are so with the probe, from these on.
    """
    started, score = time.perf_counter(), scorer(task, corpus.label_names, code)
    validation, found = corpus.split("validation"), list[Scored]()
    told: dict[str, Any] = {"progress": progress, "on_epoch": on_epoch}
    model: Any = encoder
    if trained and heads:
        tokens, split = encoder.tokens_per_batch(execution.batch_tokens), corpus.split("train")
        source = FeatureSource(encoder, validation, tokens, "float32")
        for seed in seeds:
            probe = build_probe(model, corpus, task, [seed]).to(model.device)
            values = nn.Parameter(constants.values.to(model.device, copy=True))
            groups: list[dict[str, Any]] = [{"params": [values]}, {"params": [*probe.parameters()]}]
            if isinstance(constants, ConstantOutputs):
                groups[0]["lr"] = _OPTIMAL_RATE
            loss = probe_loss(model, probe, split, task.probe.encoder_dropout)
            # Nothing is frozen but the encoder, so every epoch runs it. In use, rows are masked and
            # divided by their absolute sum, since training may make entries negative.
            with replaced(model, constants.of(values), heads):
                JointLearner(groups, loss, model, split, seed).train(task.probe, **told)
                found += score_probe(probe, source, score)
    else:
        options = scratch, execution, features.dtype
        replacing = heads and constants is not None
        with replaced(model, constants, heads) if replacing else nullcontext():
            make = loaded(code.probe) if code else None
            probes = train_probes(encoder, corpus, task, seeds, *options, make=make, **told)
            with features_of(encoder, validation, *options) as source:
                found += [one for probe in probes for one in score_probe(probe, source, score)]
    seconds = (time.perf_counter() - started) / len(seeds)
    scored = zip(seeds, found, strict=True)
    return [SeedScore(seed, one.score, one.examples, seconds) for seed, one in scored]


def train_probes(
    encoder: FeatureModel,
    corpus: TokenisedCorpus,
    task: TaskSpec,
    seeds: Sequence[int],
    scratch: Path,
    execution: ExecutionSpec,
    dtype: Precision = "float32",
    *,
    make: Any = None,
    progress: Progress = ignore_progress,
    on_epoch: OnEpoch = ignore_epoch,
) -> list[Probe]:
    """The task's probes, trained on all training rows: one for all seeds, or one for each where
    ``make`` makes a module of the user's own; an estimator is fitted.
    """
    split, spec, found = corpus.split("train"), task.probe, list[Probe]()
    rows, total = len(split), (1 + spec.epochs) * len(split)
    how: dict[str, Any] = {"progress": lambda done, _: progress(rows + done, total)}
    how |= {"rows": rows, "on_epoch": on_epoch}
    with features_of(
        encoder,
        split,
        scratch,
        execution,
        dtype,
        dropout=spec.encoder_dropout,
        progress=lambda done, _: progress(done, total),
    ) as source:
        if is_estimator(make):
            return [FittedProbe(make, source, seeds)]
        window = window_of(encoder, split, spec.batch_size)
        for own in [seeds] if make is None else [[seed] for seed in seeds]:
            found.append(build_probe(encoder, corpus, task, own, make).to(encoder.device))
            train(ProbeLearner(found[-1], source, own), spec, own, window=window, **how)
    return found


@torch.inference_mode()
def score_probe(probe: Probe, source: FeatureSource, score: Score) -> list[Scored]:
    """What the predictions of every seed score."""
    found: list[list[np.ndarray]] = []
    window = window_of(source.encoder, source.split, 1)
    for members in torch.arange(len(source.split)).split(window):
        features, numbers = source.window(members.numpy())
        rows = torch.from_numpy(numbers)
        parts = [probe.predictions(features, part) for part in rows.split(_SCORED_ROWS)]
        labelled = features.tokens_of(rows)[0] if features.token_labels else rows
        labels = features.labels[labelled.to(features.device)]
        predicted = torch.cat(parts, dim=1), labels, features.label_counts[rows]
        found.append([one.cpu().numpy() for one in predicted])
        # The features of a window are gone before the next one's are made.
        del features
    predictions, *labels_ = zip(*found, strict=True)
    together = [np.concatenate(one) for one in labels_]
    return [score(own, *together) for own in np.concatenate(predictions, axis=1)]


def build_probe(
    encoder: FeatureModel,
    corpus: TokenisedCorpus,
    task: TaskSpec,
    seeds: Sequence[int],
    make: MakeModule | None = None,
) -> Probe:
    """The untrained probe of a task: the user's own, by sequence, by token, or for masked words."""
    layers, width = encoder.layers + 1, encoder.width
    sizes: dict[str, Any] = {"layers": layers, "width": width}
    if corpus.kind == "mlm":
        return MaskedProbe(seeds, **sizes, word_embeddings=encoder.word_embeddings)
    labels = 1 if task.regression else len(corpus.label_names or ())
    if make is not None and not task.regression:
        return ModuleProbe(make, seeds[0], layers * width, labels)
    if corpus.kind == "words":
        return TokenProbe(seeds, **sizes, labels=labels, dtype=getattr(torch, encoder.precision))
    sizes |= {"slots": corpus.slots, "labels": labels, "regression": task.regression}
    dropout = AUTHORS_DROPOUT.get(encoder.config.model_type, 0.0)
    return SequenceProbe(seeds, **sizes, dropout=dropout if task.probe.encoder_dropout else 0.0)
