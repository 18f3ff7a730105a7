"""The score of a cell of a study: a probe on the features of an encoder some of whose heads are
constant, or the probe and the constants trained together (paper, Sections 3.3 and 5.2).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
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
from papa.probes.probes import Inputs, Labels, MaskedProbe, Probe, Rows, SequenceProbe, TokenProbe
from papa.probes.training import Groups, probe_loss, probe_window, train, train_parts
from papa.progress import OnEpoch, Progress, ignore_epoch, ignore_progress
from papa.scores.answers import labels_of
from papa.scores.metrics import Scored
from papa.scores.own import OwnCode, Score, loaded, scorer
from papa.spec import ExecutionSpec, FeaturesSpec, Precision, TaskSpec
from papa.spec.orders import Head
from papa.text.batches import micro_batches
from papa.text.corpus import TokenisedCorpus, TokenisedSplit

AUTHORS_DROPOUT = {"bert": 0.1, "deberta": 0.1, "deberta-v2": 0.1}
"""Dropout before the last map of the authors' sequence probes, by ``model_type``; else none."""
_OPTIMAL_RATE = 2e-3
"""The learning rate of an optimal output (Li and Janson, 2024)."""

MakeModule = Callable[[int, int], nn.Module]
"""From the width of inputs and the number of classes to a module: [n, inputs] to [n, classes]."""


def unseen_by(constants: object, split: TokenisedSplit) -> float | None:
    """Of the entries of C that the rows of a split read, the share that the average never saw; None
    for other constants.
    """
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
    code: OwnCode | None = None,
    progress: Progress = ignore_progress,
    on_epoch: OnEpoch = ignore_epoch,
) -> list[Scored]:
    """Train the task's probe and score it on the validation split, once for each seed, while
    ``heads`` are constant, or of the layer before (by ``papa.spec.study.REUSED``), beside those
    that a block around the call replaces. A seed's score does not depend on the seeds beside it.

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
            make = loaded(code.probe) if code else None
            probes = train_probes(encoder, corpus, task, seeds, *options, make=make, **told)
            with features_of(encoder, validation, *options) as source:
                found += [one for probe in probes for one in score_probe(probe, source, score)]
    return found


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
    asked: dict[str, Any] = {"progress": lambda done, _: progress(done, total)}
    asked["dropout"] = spec.encoder_dropout
    with features_of(encoder, split, scratch, execution, dtype, **asked) as source:
        if is_estimator(make):
            return [FittedProbe(make, source, seeds)]
        window = window_of(encoder, split, spec.batch_size)
        for own in [seeds] if make is None else [[seed] for seed in seeds]:
            probe = build_probe(encoder, corpus, task, own, make).to(encoder.device)
            groups = [{"params": [one for one in probe.parameters() if one.requires_grad]}]
            train(groups, probe_window(probe, source, own), spec, own, window=window, **how)
            found.append(probe)
    return found


@torch.inference_mode()
def score_probe(probe: Probe, source: FeatureSource, score: Score) -> list[Scored]:
    found = list[np.ndarray]()
    for features, rows in source.windows():
        parts = [probe.predictions(features, part) for part in rows.split(32)]
        found.append(torch.cat(parts, dim=1).cpu().numpy())
        del features
    return [score(own, *labels_of(source.split)) for own in np.concatenate(found, axis=1)]


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


def is_estimator(probe: Any) -> bool:
    """Whether it is fitted, as scikit-learn's are, and not trained by steps."""
    return not isinstance(probe, type) and hasattr(probe, "fit") and hasattr(probe, "predict")


def check_probe(probe: Any) -> None:
    if not is_estimator(probe) and (not callable(probe) or isinstance(probe, nn.Module)):
        raise SpecError(
            f"probe is a {type(probe).__name__}, expected an estimator with fit and predict, or a "
            "function of (inputs, classes) such as torch.nn.Linear, which makes a module for each "
            "seed"
        )


class OwnProbe(Probe):
    """A probe of the user's own, which sees of every text the means over its tokens of all layers
    side by side; where words have labels, every labelled word's layers.
    """

    def inputs(self, features: PackedFeatures, rows: Rows) -> tuple[Inputs, Labels]:
        if features.token_labels:
            return super().inputs(features, rows)
        (rows,), device = rows, features.values.device
        tokens, position = (one.to(device) for one in features.tokens_of(rows))
        values = features.values[tokens].flatten(1).float()
        sums = values.new_zeros(len(rows), values.shape[1]).index_add_(0, position, values)
        means = sums / features.lengths[rows].to(device)[:, None]
        return means[None], features.labels[rows.to(device)][None]


class ModuleProbe(OwnProbe):
    """A module whose start is drawn with a seed; trained as PAPA's own probes are, with dropout
    where it has any.
    """

    def __init__(self, make: MakeModule, seed: int, inputs: int, labels: int) -> None:
        super().__init__([seed])
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.module = make(inputs, labels)
            shape = tuple(self.module.eval()(torch.zeros(2, inputs)).shape)
        if shape != (2, labels):
            raise SpecError(
                f"probe: its module gave shape {shape} for 2 inputs, expected [2, {labels}]: a "
                "number for each class"
            )

    def forward(self, inputs: Inputs, dropout_seeds: Sequence[int] = ()) -> Tensor:
        with torch.random.fork_rng():
            torch.manual_seed(dropout_seeds[0] if dropout_seeds else 0)
            return self.module.train(bool(dropout_seeds))(inputs[0])[None]


class FittedProbe(OwnProbe):
    """Copies of an estimator, one for each seed, which is its ``random_state`` where it has one."""

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
