"""A probe trained on the encoder as it is, for what scores its heads; it stays as it is then."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

from papa.corpora.corpus import TokenisedCorpus
from papa.encoders.encoder import Encoder
from papa.probes.evaluate import build_probe
from papa.probes.feature_sources import StreamedFeatures, feature_bytes, stored
from papa.probes.probes import Probe
from papa.probes.training import fit_probes
from papa.progress import Progress, ignore_progress
from papa.spec import ExecutionSpec, TaskSpec


def frozen_probe(
    encoder: Encoder,
    corpus: TokenisedCorpus,
    task: TaskSpec,
    seed: int,
    *,
    execution: ExecutionSpec,
    scratch: Path,
    progress: Progress = ignore_progress,
) -> Probe:
    """The probe that a cell without constant heads trains with this seed, from the training split
    alone.

    Args:
        encoder: frozen; as before after the call.
        corpus: its training split is trained on.
        task: its probe.
        seed: of the probe's start and the order of rows.
        execution: batch_tokens and features_budget_gb.
        scratch: a folder for the features; made where it is missing.
        progress: called with rows done and in all, over all epochs.

    Raises:
        DiskSpaceError: features fit the budget and not the disk.
        SpecError: training diverged.
    """
    split, dropout = corpus.split("train"), task.probe.encoder_dropout
    # What is dropped depends on how rows fall into batches: no setting of speed may decide on that.
    tokens = encoder.tokens_per_batch(None if dropout else execution.batch_tokens)
    budget = 0.0 if dropout else execution.features_budget_gb * 1e9
    scratch.mkdir(parents=True, exist_ok=True)
    source = (
        stored(encoder, split, scratch, batch_tokens=tokens, dtype="float32")
        if feature_bytes(encoder, split, "float32") <= budget
        else nullcontext(StreamedFeatures(split, encoder, tokens, "float32", dropout))
    )
    probe = build_probe(encoder, corpus, task, [seed]).to(encoder.device)
    with source as features:
        fit_probes(
            probe,
            features,
            seeds=[seed],
            spec=task.probe,
            token_values=(encoder.layers + 1) * encoder.width,
            progress=progress,
        )
    return probe.requires_grad_(False)
