"""By what labels are read: a probe that is trained on the encoder as it is and then frozen, or the
model's own head.
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

from papa.ablation.substitutes import Substitute
from papa.corpora.corpus import TokenisedCorpus
from papa.corpora.tokens import special_tokens_for
from papa.encoders.encoder import Encoder
from papa.encoders.reference import load_tokenizer
from papa.probes.evaluate import build_probe
from papa.probes.feature_sources import StreamedFeatures, feature_bytes, stored
from papa.probes.features import check_disk
from papa.probes.own import load_own, own_class
from papa.probes.probes import Probe
from papa.probes.training import fit_probes
from papa.progress import Progress, ignore_progress
from papa.ranking.own_loss import OwnLoss
from papa.ranking.scores.asked import Asked
from papa.spec import ExecutionSpec, TaskSpec


def frozen_probe(asked: Asked) -> Probe:
    """The probe that ``asked`` gives, else one that is trained now."""
    return asked.probe or trained_probe(
        asked.encoder,
        asked.corpus,
        asked.task,
        asked.seed,
        scratch=asked.scratch,
        execution=asked.execution,
    )


def trained_probe(
    encoder: Encoder,
    corpus: TokenisedCorpus,
    task: TaskSpec,
    seed: int,
    *,
    scratch: Path,
    execution: ExecutionSpec,
    progress: Progress = ignore_progress,
) -> Probe:
    """The task's probe of a seed, trained on all training rows as that of a cell without constant
    heads is.
    """
    split, spec = corpus.split("train"), task.probe
    probe = build_probe(encoder, corpus, task, [seed]).to(encoder.device)
    needed, tokens = feature_bytes(encoder, split, "float32"), encoder.tokens_per_batch(None)
    kept = needed <= execution.features_budget_gb * 1e9 and not spec.encoder_dropout
    scratch.mkdir(parents=True, exist_ok=True)
    if kept:
        check_disk(scratch, needed)
    streamed = StreamedFeatures(split, encoder, tokens, "float32", spec.encoder_dropout)
    with (
        stored(encoder, split, scratch, batch_tokens=tokens, dtype="float32")
        if kept
        else nullcontext(streamed)
    ) as source:
        fit_probes(
            probe,
            source,
            seeds=[seed],
            spec=spec,
            token_values=(encoder.layers + 1) * encoder.width,
            progress=progress,
        )
    return probe.requires_grad_(False)


def own_loss(asked: Asked, substitute: Substitute) -> OwnLoss:
    """The loss of what the model's own head answers on the training text, with a substitute as far
    as heads' attention is not their own.
    """
    reference, task = asked.encoder.reference, asked.task
    assert reference is not None, "an own head is read from files"
    model = load_own(reference, own_class(task, reference), str(asked.encoder.device))
    special_tokens = special_tokens_for(task.kind, load_tokenizer(reference))
    return OwnLoss.on_training_text(
        model.requires_grad_(False), substitute, asked.corpus, special_tokens, task
    )
