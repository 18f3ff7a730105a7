"""The score of a cell of a study (paper, Sections 3.3 and 5.2)."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from papa.errors import SpecError
from papa.heads.constants import ConstantMatrices, EntryCounts
from papa.heads.outputs import ConstantOutputs
from papa.heads.replacement import replaced
from papa.probes.features import FeatureModel, FeatureSource, PackedFeatures, features_of, window_of
from papa.probes.probes import (
    Inputs,
    Labels,
    MaskedProbe,
    Probe,
    Rows,
    SeparateProbes,
    SequenceProbe,
    TokenProbe,
)
from papa.probes.training import Groups, probe_loss, probe_window, train, train_parts
from papa.progress import OnEpoch, Progress, ignore_epoch, ignore_progress
from papa.scores.answers import labels_of
from papa.scores.custom import CustomCode, Score, load_code, scorer
from papa.scores.metrics import Scored
from papa.spec import ExecutionSpec, FeaturesSpec, Precision, TaskSpec
from papa.spec.orders import Head
from papa.text.batches import micro_batches
from papa.text.corpus import TokenisedCorpus, TokenisedSplit

AUTHORS_DROPOUT = {"bert": 0.1, "deberta": 0.1, "deberta-v2": 0.1}
"""Dropout before the last map of the authors' sequence probes, by ``model_type``; else none."""
_OPTIMAL_RATE = 2e-3
"""The learning rate of an optimal output (Li and Janson, 2024)."""


def unseen_by(constants: object, split: TokenisedSplit) -> float | None:
    """The share of entries of C that a split reads and the average never saw; None for others."""
    if not isinstance(constants, ConstantMatrices):
        return None
    entries = EntryCounts()
    for batch in micro_batches(split, None, 4096):
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
    code: CustomCode | None = None,
    progress: Progress = ignore_progress,
    on_epoch: OnEpoch = ignore_epoch,
) -> list[Scored]:
    """Train the task's probe and score it on the validation split, once for each seed, while
    ``heads`` are constant, beside those that a block around the call replaces. A seed's score does
    not depend on the seeds beside it.

    Args:
        constants: ``ConstantMatrices``, or what else ``papa.heads.replacement`` takes.
        trained: whether they are so with the probe, from these on.
    """
    score, found = scorer(task, corpus.label_names, code), list[Scored]()
    validation = corpus.split("validation")
    told: dict[str, Any] = {"progress": progress, "on_epoch": on_epoch}
    model: Any = encoder
    if trained and heads:
        tokens, split = encoder.tokens_per_batch(execution.batch_tokens), corpus.split("train")
        source = FeatureSource(encoder, validation, tokens, "float32")
        for seed in seeds:
            probe = build_probe(model, corpus, task, [seed]).to(model.device)
            values = nn.Parameter(constants.values.to(model.device, copy=True))
            groups: Groups = [{"params": [values]}, {"params": [*probe.parameters()]}]
            if isinstance(constants, ConstantOutputs):
                groups[0]["lr"] = _OPTIMAL_RATE
            loss = probe_loss(model, probe, split, task.probe.encoder_dropout)
            # Nothing is frozen but the encoder, so every epoch runs it. In use, rows are masked and
            # divided by their absolute sum, since training may make entries negative.
            with replaced(model, constants.of(values), heads):
                train_parts((groups, loss), model, split, task.probe, seed, **told)
                found += score_probe(probe, source, score)
    else:
        options = scratch, execution, features.dtype
        replacing = heads and constants is not None
        with replaced(model, constants, heads) if replacing else nullcontext():
            own = load_code(code.probe) if code else None
            probe = train_probe(encoder, corpus, task, seeds, *options, estimator=own, **told)
            with features_of(encoder, validation, *options) as source:
                found = score_probe(probe, source, score)
    return found


def train_probe(
    encoder: FeatureModel,
    corpus: TokenisedCorpus,
    task: TaskSpec,
    seeds: Sequence[int],
    scratch: Path,
    execution: ExecutionSpec,
    dtype: Precision = "float32",
    *,
    estimator: Any = None,
    progress: Progress = ignore_progress,
    on_epoch: OnEpoch = ignore_epoch,
) -> Probe:
    """The task's probe of all seeds, trained on all training rows; an ``estimator`` is fitted."""
    split, spec = corpus.split("train"), task.probe
    rows, total = len(split), (1 + spec.epochs) * len(split)
    how: dict[str, Any] = {"progress": lambda done, _: progress(rows + done, total)}
    how |= {"rows": rows, "on_epoch": on_epoch}
    asked: dict[str, Any] = {"progress": lambda done, _: progress(done, total)}
    asked["dropout"] = spec.encoder_dropout
    with features_of(encoder, split, scratch, execution, dtype, **asked) as source:
        if estimator is not None:
            return FittedProbe(estimator, source, seeds)
        window = window_of(encoder, split, spec.batch_size)
        probe: Probe
        groups: Groups
        if len(seeds) > 1 and encoder.device.type == "cpu":
            # On a CPU, where scores are the same to the bit, also with other seeds beside them.
            separate = [build_probe(encoder, corpus, task, [seed]) for seed in seeds]
            probe = SeparateProbes(separate)
            groups = probe.groups
        else:
            probe = build_probe(encoder, corpus, task, seeds).to(encoder.device)
            groups = [{"params": [*probe.parameters()]}]
        train(groups, probe_window(probe, source, seeds), spec, seeds, window=window, **how)
    return probe


@torch.inference_mode()
def score_probe(probe: Probe, source: FeatureSource, score: Score) -> list[Scored]:
    found = list[np.ndarray]()
    for features, rows in source.windows():
        parts = [probe.predictions(features, part) for part in rows.split(32)]
        found.append(torch.cat(parts, dim=1).cpu().numpy())
        del features
    return [score(own, *labels_of(source.split)) for own in np.concatenate(found, axis=1)]


def build_probe(
    encoder: FeatureModel, corpus: TokenisedCorpus, task: TaskSpec, seeds: Sequence[int]
) -> Probe:
    """The untrained probe of a task: by sequence, by token, or for masked words."""
    layers, width = encoder.layers + 1, encoder.width
    sizes: dict[str, Any] = {"layers": layers, "width": width}
    if corpus.kind == "mlm":
        return MaskedProbe(seeds, **sizes, word_embeddings=encoder.word_embeddings)
    labels = 1 if task.regression else len(corpus.label_names or ())
    if corpus.kind == "words":
        return TokenProbe(seeds, **sizes, labels=labels, dtype=getattr(torch, encoder.precision))
    sizes |= {"slots": corpus.slots, "labels": labels, "regression": task.regression}
    dropout = AUTHORS_DROPOUT.get(encoder.config.model_type, 0.0)
    return SequenceProbe(seeds, **sizes, dropout=dropout if task.probe.encoder_dropout else 0.0)


def check_probe(probe: Any) -> None:
    """Refuse what is no estimator, fitted as scikit-learn's are."""
    if isinstance(probe, type) or not (hasattr(probe, "fit") and hasattr(probe, "predict")):
        raise SpecError(
            f"probe is a {type(probe).__name__}, expected an estimator with fit and predict"
        )


class FittedProbe(Probe):
    """Copies of an estimator, one for each seed, which is its ``random_state`` if it has one: it
    sees the mean over a text's tokens of all layers, or where words have labels, theirs.
    """

    def __init__(self, estimator: Any, source: FeatureSource, seeds: Sequence[int]) -> None:
        super().__init__(seeds[:1])  # All see the same inputs.
        parts = list[np.ndarray]()
        # All tokens of a window are in memory at once; of all rows only what a probe sees.
        for features, rows in source.windows():
            parts.append(self.inputs(features, rows[None])[0][0].cpu().numpy())
            del features
        inputs, labels = np.concatenate(parts), labels_of(source.split)[0]
        self.fitted = [copy.deepcopy(estimator) for _ in seeds]
        for seed, fresh in zip(seeds, self.fitted, strict=True):
            if hasattr(fresh, "get_params") and "random_state" in fresh.get_params():
                fresh.set_params(random_state=seed)
            fresh.fit(inputs, labels)

    def inputs(self, features: PackedFeatures, rows: Rows) -> tuple[Inputs, Labels]:
        if features.token_labels:
            return super().inputs(features, rows)
        (rows,), device = rows, features.values.device
        tokens, position = (one.to(device) for one in features.tokens_of(rows))
        values = features.values[tokens].flatten(1).float()
        sums = values.new_zeros(len(rows), values.shape[1]).index_add_(0, position, values)
        means = sums / features.lengths[rows].to(device)[:, None]
        return means[None], features.labels[rows.to(device)][None]

    def predicted(self, inputs: Inputs, labels: Labels) -> Tensor:
        given = inputs[0].cpu().numpy()
        if not len(given):  # Rows without a labelled word.
            return torch.zeros(len(self.fitted), 0, dtype=torch.int64)
        predicted = np.stack([one.predict(given) for one in self.fitted])
        if predicted.shape[1:] != given.shape[:1] or predicted.dtype.kind not in "iu":
            raise SpecError(
                f"probe: {type(self.fitted[0]).__name__} predicted {predicted.dtype} of shape "
                f"{list(predicted.shape[1:])}, expected a class for each of {len(given)} inputs: "
                "give a classifier"
            )
        return torch.from_numpy(predicted)
