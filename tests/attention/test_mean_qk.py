"""The mean query and the mean key at every distance, with the rotation written out."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from papa.attention.mean_qk import mean_qk
from papa.errors import EncoderError, PapaError
from papa.spec.file import resolve_study
from papa.study.inputs import resolve_inputs
from tests.attention.cases import Case
from tests.encoders.inputs import SLOTS
from tests.flows.conftest import SMALL


def turned(states: Tensor, position: int, base: float) -> Tensor:
    """Vectors [heads, width]: values i and i + width/2 turn by position · base^(-2i/width)."""
    half = states.shape[-1] // 2
    angles = position * base ** (-torch.arange(half, dtype=torch.float64) / half)
    one, other = states[:, :half], states[:, half:]
    return torch.cat(
        [one * angles.cos() - other * angles.sin(), other * angles.cos() + one * angles.sin()], -1
    )


@torch.inference_mode()
def test_scores_are_those_of_the_means_by_distance() -> None:
    case = Case("modernbert")
    inputs, config = case.inputs(1), case.encoder.config
    found = mean_qk(case.encoder, [inputs.compact()], SLOTS).matrices
    states = case.padded(inputs)
    batch = inputs.compact()
    for layer, module in enumerate(case.modules()):
        # The first layer reads the embeddings as they are.
        norm = case.plain.layers[layer].attn_norm
        projected = module.Wqkv(norm(states[layer]))[batch.attention_mask].double().mean(0)
        query, key, _ = projected.view(3, case.encoder.heads, -1)
        kind = config.layer_types[layer]
        base = config.rope_parameters[kind]["rope_theta"]
        scores = {
            distance: (turned(query, distance, base) * key).sum(-1) / math.sqrt(key.shape[-1])
            for distance in range(1 - SLOTS, SLOTS)
        }
        reach = config.local_attention // 2 if kind == "sliding_attention" else SLOTS
        expected = torch.full((case.encoder.heads, SLOTS, SLOTS), -math.inf, dtype=torch.float64)
        for i in range(SLOTS):
            for j in range(SLOTS):
                if abs(i - j) <= reach:
                    expected[:, i, j] = scores[i - j]
        torch.testing.assert_close(found[layer].double(), expected.softmax(-1), atol=1e-5, rtol=0)
        assert (found[layer] - 1 / SLOTS).abs().max() > 1e-3, "negative control"


def test_what_has_no_rotary_positions_is_refused_by_name(tmp_path: Path) -> None:
    case = Case("bert")
    with pytest.raises(EncoderError, match="mean_qk' need rotary positions, and BERT"):
        mean_qk(case.encoder, [], SLOTS)
    study = resolve_study({**SMALL, "constants": ["mean_qk"]}, folder=tmp_path, origin="test")
    with pytest.raises(PapaError, match=r"constants.0: .*need rotary positions, and BERT"):
        resolve_inputs(study).inputs()
