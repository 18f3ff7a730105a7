"""A study's probe, or a model's own head, on its way into an export, and whether it answers there
as in the study.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool
from safetensors.torch import save_file
from torch import nn

from papa.corpora.split import TokenisedSplit
from papa.corpora.tokens import IGNORED
from papa.errors import ArtifactError
from papa.exporting.document import CLASSIFIER, CONFIGURATION
from papa.exporting.own_head import OwnHead
from papa.exporting.placement import InputLayout
from papa.exporting.speed import ordinary_inputs, reproducible_rows
from papa.probes.probes import Probe, TokenProbe
from papa.scores.metrics import scored
from papa.spec import Metric

_ROWS = 32
"""Texts that are classified at a time."""


@dataclass(frozen=True)
class TrainedProbe:
    """A probe as the study trained it with one seed.

    Attributes:
        probe: of that seed alone.
        seed: which.
        labels: the classes' names; one for a number.
        metric, positive: how it is scored (``papa.scores.metrics.scored``).
        examples: what the study found of each validation row, float64 [rows, k].
    """

    probe: Probe
    seed: int
    labels: tuple[str, ...]
    metric: Metric
    positive: int
    examples: np.ndarray

    def described(self) -> dict[str, Any]:
        """What ``papa.json`` says of it."""
        return {
            "tokens": isinstance(self.probe, TokenProbe),
            "regression": self.metric == "spearman",
            "labels": list(self.labels),
            "seed": self.seed,
        }

    def same(
        self, found: np.ndarray, split: TokenisedSplit, rows: np.ndarray
    ) -> Bool[np.ndarray, " rows"]:
        """Which rows are answered as in the study.

        Args:
            found: the answers, one after the other.
        """
        labels, lengths = split.labels_of(rows), None
        if split.label_per_token:
            labels, lengths = labels[labels != IGNORED], split.probed_lengths[split.index_of(rows)]
        own = scored(self.metric, found, labels, self.labels, lengths, self.positive).examples
        theirs = self.examples[split.index_of(rows)]
        return np.isclose(own, theirs, rtol=1e-3, atol=1e-3).all(axis=1)


@dataclass(frozen=True)
class OwnClassifier:
    """A model's own head, as the study asked it.

    Attributes:
        probe: the head.
        name: the class of transformers that it is of.
        labels: the classes' names, as the model has them.
        answers: what the study found of each validation row: ``logits``, and ``lengths``.
    """

    probe: OwnHead
    name: str
    labels: tuple[str, ...]
    answers: Mapping[str, np.ndarray]

    def described(self) -> dict[str, Any]:
        """What ``papa.json`` says of it."""
        return {"tokens": self.probe.of_tokens, "labels": list(self.labels), "own": self.name}

    def same(
        self, found: np.ndarray, split: TokenisedSplit, rows: np.ndarray
    ) -> Bool[np.ndarray, " rows"]:
        """As of ``TrainedProbe``."""
        logits, ends = self.answers["logits"], self.answers["lengths"].cumsum()
        expected = np.split(logits[:, 0] if self.probe.labels == 1 else logits.argmax(1), ends[:-1])
        theirs = [expected[place] for place in split.index_of(rows)]
        own = np.split(found, np.cumsum([len(one) for one in theirs])[:-1])
        return np.array(
            [np.allclose(*both, rtol=1e-3, atol=1e-3) for both in zip(own, theirs, strict=True)]
        )


def save_classifier(probe: nn.Module, folder: Path) -> None:
    """Write its weights into an export."""
    weights = {name: tensor.cpu().contiguous() for name, tensor in probe.state_dict().items()}
    save_file(weights, folder / CLASSIFIER)
    shutil.copymode(folder / CONFIGURATION, folder / CLASSIFIER)


@torch.inference_mode()
def agreement(
    exported: nn.Module,
    trained: TrainedProbe | OwnClassifier,
    split: TokenisedSplit,
    layout: InputLayout,
) -> dict[str, Any]:
    """On how many validation rows the exported folder answers as in the study."""
    rows = reproducible_rows(split, layout)
    parts = np.array_split(rows, -(-len(rows) // _ROWS))
    found = np.concatenate([_answers(exported, split, part, layout) for part in parts])
    same = trained.same(found, split, rows)
    if not same.any():
        raise ArtifactError(
            "the exported classifier answers no validation row as the study's did: report this as "
            "a fault, nothing was written"
        )
    return {"rows": len(rows), "same": int(same.sum())}


def _answers(
    exported: nn.Module, split: TokenisedSplit, rows: np.ndarray, layout: InputLayout
) -> np.ndarray:
    """Classes or numbers: of each row, or of each labelled token."""
    inputs = ordinary_inputs(split, rows, layout)
    logits = exported(**inputs).logits.float().cpu()
    if split.label_per_token:
        logits = logits[inputs["attention_mask"].bool()][split.labels_of(rows) != IGNORED]
    regression = logits.shape[-1] == 1
    return (logits[:, 0] if regression else logits.argmax(-1)).numpy()
