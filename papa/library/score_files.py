"""Head scores as files of other projects, which read them by layer and head."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import pandas
from jaxtyping import Float
from torch import Tensor

from papa.errors import SpecError, meant
from papa.files import write_atomically
from papa.ranking.external_scores import scores_by_head
from papa.ranking.kv_groups import group_scores, group_size_in

ScoreFormat = Literal["duo_attention", "retrieval_head"]


def save_scores(
    scores: pandas.DataFrame | Tensor | np.ndarray | Sequence[Sequence[float]],
    path: str | Path,
    *,
    format: ScoreFormat,
    sink_size: int = 64,
    recent_size: int = 256,
) -> None:
    """Write a score of every head in the format of another project; a higher score is kept longer.

    "duo_attention" has a number for each group of heads that share keys and values. Groups are
    numbered in the column ``kv_group`` of a frame, as ``head_scores`` returns it for
    ``unit="kv_group"``; a group has the score of its highest head.

    Examples:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "scores.json"
        >>> papa.save_scores([[0.5, 0.1]], path, format="retrieval_head")
        >>> path.read_text()
        '{"0-0": [0.5], "0-1": [0.1]}'

    Args:
        scores: A frame as ``papa.head_scores`` returns it, or numbers [layers, heads]; for
            "duo_attention" [layers, groups]. Without a column ``kv_group`` each head is a group.
        path: A folder for "duo_attention", a file for "retrieval_head".
        format: "duo_attention" writes ``full_attention_heads.tsv``, a line for each layer with a
            number from 0 to 1 for each group of heads, and ``config.json``, which DuoAttention and
            kvpress' DuoAttentionPress read (Xiao et al., 2025). The numbers are the share of groups
            with a lower score, so that a threshold keeps that share. "retrieval_head" writes JSON
            with a list of one score under each "layer-head" (Wu et al., 2025).
        sink_size: For "duo_attention", how many first tokens a head attends to that is not kept.
        recent_size: For "duo_attention", how many last tokens it attends to.

    Raises:
        SpecError: There is no such format, or ``kv_group`` numbers no groups of equal size.
        OSError: The path cannot be written.
    """
    formats = get_args(ScoreFormat)
    if format not in formats:
        raise SpecError(f"format is {format!r}{meant(format, formats)}: give one of {formats}")
    numbers = scores_by_head(scores)
    if format == "retrieval_head":
        by_head = {f"{layer}-{head}": [score] for (layer, head), score in np.ndenumerate(numbers)}
        write_atomically(Path(path), json.dumps(by_head).encode())
        return
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    shares = _shares_below(group_scores(numbers, group_size_in(scores)))
    lines = ["\t".join(f"{share:.6f}" for share in layer) for layer in shares]
    write_atomically(folder / "full_attention_heads.tsv", ("\n".join(lines) + "\n").encode())
    settings = {"sink_size": sink_size, "recent_size": recent_size}
    write_atomically(folder / "config.json", json.dumps(settings).encode())


def _shares_below(scores: Float[np.ndarray, "layers groups"]) -> Float[np.ndarray, "layers groups"]:
    """Return for each group the share of the others with a lower score, 0 to 1; equal scores share
    one.
    """
    sorted_scores = np.sort(scores, axis=None)
    lower = np.searchsorted(sorted_scores, scores, side="left")
    return lower / max(scores.size - 1, 1)
