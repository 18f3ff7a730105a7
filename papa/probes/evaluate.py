"""The score of a cell of a study (paper, Sections 3.3 and 5.2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import numpy as np
import torch
from torch import nn

from papa.heads.constants import ConstantMatrices, EntryCounts
from papa.heads.outputs import ConstantOutputs
from papa.heads.replacement import replaced
from papa.heads.substitutes import Substitute
from papa.models.encoder import Encoder
from papa.probes.chunks import ChunkLoss, probe_loss, train_in_chunks
from papa.probes.estimators import Estimator, FittedProbe
from papa.probes.features import FeatureModel, FeatureSource, features_of, window_rows
from papa.probes.probes import MaskedProbe, Probe, SequenceProbe, TokenProbe
from papa.probes.training import Groups, Learner, probe_window, train
from papa.progress import OnEpoch, Progress, ignore_epoch, ignore_progress
from papa.scores.answers import labels_and_lengths
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
_SCORED_ROWS = 32
"""Rows that are scored at a time."""


def unseen_by(substitute: object, split: TokenisedSplit) -> float | None:
    """Return the share of entries of C that a split reads and the average never observed; None for
    substitutes without an average.
    """
    if not isinstance(substitute, ConstantMatrices):
        return None
    entries = EntryCounts()
    for batch in micro_batches(split, None, 4096):
        entries.add(substitute.seen, batch)
    return entries.unseen_share


def evaluate_cell(
    encoder: FeatureModel,
    corpus: TokenisedCorpus,
    task: TaskSpec,
    seeds: Sequence[int],
    *,
    substitute: Substitute | None = None,
    heads: Sequence[Head] = (),
    trained: bool = False,
    features: FeaturesSpec,
    execution: ExecutionSpec,
    scratch: Path,
    code: CustomCode | None = None,
    progress: Progress = ignore_progress,
    on_epoch: OnEpoch = ignore_epoch,
) -> list[Scored]:
    """Train the task's probe, and with it a ``trained`` substitute, and score it on the validation
    split, once for each seed, while ``heads`` output it, in addition to those that a block
    around the call replaces. A seed's score does not depend on the other seeds.
    """
    score = scorer(task, corpus.label_names, code)
    validation = corpus.split("validation")
    if trained and heads:
        assert isinstance(encoder, Encoder)
        assert isinstance(substitute, ConstantMatrices | ConstantOutputs)
        tokens = encoder.tokens_per_batch(execution.batch_tokens)
        source = FeatureSource(encoder, validation, tokens, "float32")
        scores: list[Scored] = []
        for seed in seeds:
            with _probe_trained_with_constants(
                encoder, corpus, task, seed, substitute, heads, progress, on_epoch
            ) as seed_probe:
                scores += score_probes([seed_probe], source, score)
        return scores
    replacement: AbstractContextManager[object] = nullcontext()
    if heads and substitute is not None:
        # Word embeddings come with no heads to replace.
        assert isinstance(encoder, Encoder)
        replacement = replaced(encoder, substitute, heads)
    with replacement:
        probes = train_probes(
            encoder,
            corpus,
            task,
            seeds,
            scratch,
            execution,
            features.dtype,
            estimator=load_code(code.probe) if code else None,
            progress=progress,
            on_epoch=on_epoch,
        )
        with features_of(encoder, validation, scratch, execution, features.dtype) as source:
            return score_probes(probes, source, score)


@contextmanager
def _probe_trained_with_constants(
    encoder: Encoder,
    corpus: TokenisedCorpus,
    task: TaskSpec,
    seed: int,
    constants: ConstantMatrices | ConstantOutputs,
    heads: Sequence[Head],
    progress: Progress,
    on_epoch: OnEpoch,
) -> Iterator[Probe]:
    """Train constants and the probe of one seed together; yield the probe while ``heads`` output
    the trained constants.
    """
    split = corpus.split("train")
    probe = build_probe(encoder, corpus, task, [seed]).to(encoder.device)
    values = nn.Parameter(constants.values.to(encoder.device, copy=True))
    groups: Groups = [{"params": [values]}, {"params": [*probe.parameters()]}]
    if isinstance(constants, ConstantOutputs):
        groups[0]["lr"] = _OPTIMAL_RATE

    def loss_on(running: Encoder) -> ChunkLoss:
        return probe_loss(running, probe, split, task.probe.encoder_dropout)

    # The constants change, so features cannot be stored: every epoch runs the encoder. Training may
    # make entries of C negative; in use, its rows are masked and divided by their absolute sum.
    with replaced(encoder, constants.with_values(values), heads):
        train_in_chunks(
            groups, loss_on, encoder, split, task.probe, seed, progress=progress, on_epoch=on_epoch
        )
        yield probe


def train_probes(
    encoder: FeatureModel,
    corpus: TokenisedCorpus,
    task: TaskSpec,
    seeds: Sequence[int],
    scratch: Path,
    execution: ExecutionSpec,
    dtype: Precision = "float32",
    *,
    estimator: Estimator | None = None,
    progress: Progress = ignore_progress,
    on_epoch: OnEpoch = ignore_epoch,
) -> list[Probe]:
    """Train the task's probe of each seed on all training rows, or fit an ``estimator``; return
    probes of one or more seeds, in their order.
    """
    split = corpus.split("train")
    spec = task.probe
    rows = len(split)
    # A pass for the features, then one an epoch.
    total = (1 + spec.epochs) * rows
    with features_of(
        encoder,
        split,
        scratch,
        execution,
        dtype,
        dropout=spec.encoder_dropout,
        progress=lambda done, _: progress(done, total),
    ) as source:
        if estimator is not None:
            return [FittedProbe(estimator, source, seeds)]
        # On a CPU each seed has a probe of its own: products over several seeds at once round in
        # another way than those of one, and a seed's score depends on no seed beside it. Also,
        # unused cores train separate probes side by side.
        on_cpu = encoder.device.type == "cpu"
        seeds_of_probes = [[seed] for seed in seeds] if on_cpu else [seeds]
        probes = [
            build_probe(encoder, corpus, task, probe_seeds).to(encoder.device)
            for probe_seeds in seeds_of_probes
        ]
        train(
            [Learner([{"params": [*probe.parameters()]}], probe.seeds) for probe in probes],
            probe_window(probes, source),
            spec,
            rows=rows,
            rows_per_window=window_rows(encoder, split, spec.batch_size),
            progress=lambda done, _: progress(rows + done, total),
            on_epoch=on_epoch,
        )
    return probes


@torch.inference_mode()
def score_probes(probes: Sequence[Probe], source: FeatureSource, score: Score) -> list[Scored]:
    """Return the score of every seed's probe on the rows of a split."""
    windows: list[np.ndarray] = []
    for features, rows in source.windows():
        predictions = [
            torch.cat([probe.predictions(features, batch) for probe in probes])
            for batch in rows.split(_SCORED_ROWS)
        ]
        windows.append(torch.cat(predictions, dim=1).cpu().numpy())
        # Free this window's features before the next one's are computed.
        del features
    labels, lengths = labels_and_lengths(source.split)
    return [
        score(seed_predictions, labels, lengths)
        for seed_predictions in np.concatenate(windows, axis=1)
    ]


def build_probe(
    encoder: FeatureModel, corpus: TokenisedCorpus, task: TaskSpec, seeds: Sequence[int]
) -> Probe:
    """Return the untrained probe of a task: by sequence, by token, or for masked words."""
    state_count = encoder.layers + 1
    width = encoder.width
    if corpus.kind == "mlm":
        return MaskedProbe(
            seeds, state_count=state_count, width=width, word_embeddings=encoder.word_embeddings
        )
    label_count = 1 if task.regression else len(corpus.label_names or ())
    if corpus.kind == "words":
        return TokenProbe(
            seeds,
            state_count=state_count,
            width=width,
            label_count=label_count,
            dtype=getattr(torch, encoder.precision),
        )
    dropout = 0.0
    if task.probe.encoder_dropout:
        dropout = AUTHORS_DROPOUT.get(encoder.config.model_type, 0.0)
    return SequenceProbe(
        seeds,
        state_count=state_count,
        width=width,
        slots=corpus.slots,
        label_count=label_count,
        regression=task.regression,
        dropout=dropout,
    )
