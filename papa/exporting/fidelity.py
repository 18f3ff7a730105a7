"""What an exported encoder keeps of the original's own embeddings, which the score of a probe does
not tell.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from papa.corpora.split import TokenisedSplit
from papa.exporting.placement import InputLayout
from papa.exporting.speed import States, ordinary_inputs, spread_rows
from papa.scores.fidelity import LEAST_SENTENCES, embedding_fidelity

ROWS, TOKENS = 300, 32_768
"""Texts that are embedded, and tokens of all of them, at most."""
BATCH = 16
KEPT = 0.8
"""A warning is given where surely fewer of the ten nearest neighbours are kept: by the interval's
upper end.
"""


@torch.inference_mode()
def measure_fidelity(
    original: States, changed: States, split: TokenisedSplit, layout: InputLayout
) -> dict[str, Any] | None:
    """Compare mean-pooled last hidden states, as sentence-transformers pools them, on texts of the
    split.

    Returns:
        ``texts``, how many, and for each measure of ``embedding_fidelity`` its mean, low and high;
        None for pairs and masked texts, and where there are fewer than four.
    """
    count = min(ROWS, int(TOKENS / split.lengths.mean()))
    rows = spread_rows(split.rows[np.argsort(split.lengths, kind="stable")], count)
    if split.kind not in ("text", "similarity", "words") or len(rows) < LEAST_SENTENCES:
        return None
    before, after = (_embeddings(states, split, rows, layout) for states in (original, changed))
    return {"texts": len(rows)} | {
        name: asdict(interval) for name, interval in embedding_fidelity(before, after).items()
    }


def too_few_kept(fidelity: Mapping[str, Any]) -> bool:
    """Whether surely fewer than ``KEPT`` of the ten nearest neighbours are kept."""
    return "nearest_10" in fidelity and bool(fidelity["nearest_10"]["high"] < KEPT)


def _embeddings(
    states: States, split: TokenisedSplit, rows: np.ndarray, layout: InputLayout
) -> Float[np.ndarray, "texts width"]:
    """The mean of the last hidden states of each text's tokens, [CLS] and [SEP] included."""
    found: list[np.ndarray] = []
    for start in range(0, len(rows), BATCH):
        inputs = ordinary_inputs(split, rows[start : start + BATCH], layout)
        mask, last = inputs["attention_mask"][:, :, None], states(inputs).float().cpu()
        found.append(((last * mask).sum(1) / mask.sum(1)).numpy())
    return np.concatenate(found)
