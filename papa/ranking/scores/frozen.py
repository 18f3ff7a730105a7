"""The probe by which labels are read: trained on the encoder as it is, then frozen."""

from __future__ import annotations

from contextlib import nullcontext

from papa.probes.evaluate import build_probe
from papa.probes.feature_sources import StreamedFeatures, feature_bytes, stored
from papa.probes.features import check_disk
from papa.probes.probes import Probe
from papa.probes.training import fit_probes
from papa.ranking.scores.asked import Asked


def frozen_probe(asked: Asked) -> Probe:
    """The task's probe of ``asked.seed``, trained on all training rows as that of a cell without
    constant heads is.

    Raises:
        DiskSpaceError: features fit the budget and not the disk.
        NumbersError: there is NaN or infinity in a hidden state.
        SpecError: training diverged.
    """
    encoder, split, spec = asked.encoder, asked.corpus.split("train"), asked.task.probe
    probe = build_probe(encoder, asked.corpus, asked.task, [asked.seed]).to(encoder.device)
    needed, tokens = feature_bytes(encoder, split, "float32"), encoder.tokens_per_batch(None)
    kept = needed <= asked.execution.features_budget_gb * 1e9 and not spec.encoder_dropout
    asked.scratch.mkdir(parents=True, exist_ok=True)
    if kept:
        check_disk(asked.scratch, needed)
    streamed = StreamedFeatures(split, encoder, tokens, "float32", spec.encoder_dropout)
    with (
        stored(encoder, split, asked.scratch, batch_tokens=tokens, dtype="float32")
        if kept
        else nullcontext(streamed)
    ) as source:
        fit_probes(
            probe,
            source,
            seeds=[asked.seed],
            spec=spec,
            token_values=(encoder.layers + 1) * encoder.width,
        )
    return probe.requires_grad_(False)
