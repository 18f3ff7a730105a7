"""How published weights and tokenizers differ from what ``save_pretrained`` writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import BertTokenizer

from tests.hub.vocabularies import (
    sentence_pieces,
    write_bytes,
    write_tokenizer_json,
    write_wordpieces,
)


def as_they_are(state: dict[str, Tensor]) -> dict[str, Any]:
    return dict(state)


def old_layer_norms(state: dict[str, Tensor]) -> dict[str, Any]:
    renamed = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    for new, old in renamed.items():
        state = {name.replace(new, old): value for name, value in state.items()}
    return state


def v1_extras(state: dict[str, Tensor]) -> dict[str, Any]:
    """Positions that the encoder does not use, and settings beside the weights."""
    positions = {"deberta.embeddings.position_embeddings.weight": torch.zeros(256, 32)}
    return {**state, **positions, "config": {"hidden_size": 32, "pos_att_type": "c2p|p2c"}}


def v3_halves(state: dict[str, Tensor]) -> dict[str, Any]:
    heads = {"mask_predictions.dense.weight": torch.zeros(32, 32)}
    positions = {"deberta.embeddings.position_embeddings.weight": torch.zeros(256, 32)}
    return {name: value.half() for name, value in {**state, **heads, **positions}.items()}


def wordpieces(folder: Path) -> None:
    write_wordpieces(folder)
    write_tokenizer_json(folder)


def fairseq_words(folder: Path) -> None:
    write_wordpieces(folder, ("<s>", "<pad>", "</s>", "[UNK]", "<mask>"))
    write_tokenizer_json(folder)


def roberta_bytes(folder: Path) -> None:
    write_bytes(folder, ["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    write_tokenizer_json(folder)


def deberta_bytes(folder: Path) -> None:
    write_bytes(folder, ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"])


def pieces(name: str, json_too: bool = True, **special_tokens: str | int) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / name).write_bytes(sentence_pieces(**special_tokens))
        if json_too:
            write_tokenizer_json(folder)

    return write


def modernbert_words(folder: Path) -> None:
    """Published with ``tokenizer.json`` alone."""
    write_wordpieces(folder)
    write_tokenizer_json(folder, BertTokenizer)
    (folder / "vocab.txt").unlink()
