"""How published weights and tokenizers differ from what ``save_pretrained`` writes; the small
vocabularies are trained on the spot.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import sentencepiece
import torch
from tokenizers import ByteLevelBPETokenizer
from torch import Tensor
from transformers import AutoTokenizer, BertTokenizer

SENTENCES = [
    "the quick brown fox jumps over the lazy dog",
    "a film that is warm and funny and never dull",
    "nobody expected the second half to be so slow",
    "she reads one book a week and forgets most of them",
    "two dogs and one cat sleep in the same chair",
    "Paris is larger than Lyon, but smaller than London",
    "one, two, three: the play begins at eight",
]
WORDPIECES = ("[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
"""BERT's order; 0 pads."""


def write_wordpieces(folder: Path) -> None:
    """``vocab.txt``."""
    words = dict.fromkeys(
        word.strip(",:") for sentence in SENTENCES for word in sentence.lower().split()
    )
    letters = "abcdefghijklmnopqrstuvwxyz,:"
    pieces = [*WORDPIECES, *letters, *(f"##{letter}" for letter in letters), *words]
    (folder / "vocab.txt").write_text("\n".join(dict.fromkeys(pieces)) + "\n")


def write_bytes(folder: Path, special_tokens: list[str]) -> None:
    """``vocab.json`` and ``merges.txt`` of a byte-level vocabulary."""
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(
        SENTENCES, vocab_size=330, special_tokens=special_tokens, show_progress=False
    )
    tokenizer.save_model(str(folder))


@cache
def sentence_pieces(**special_tokens: str | int) -> bytes:
    """A SentencePiece model; ``special_tokens`` are the trainer's own names for its
    first pieces.
    """
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES * 3),
        model_writer=model,
        vocab_size=90,
        hard_vocab_limit=False,
        character_coverage=1.0,
        minloglevel=2,
        **special_tokens,
    )
    return model.getvalue()


def write_tokenizer_json(folder: Path, kind: Any = AutoTokenizer) -> None:
    """``tokenizer.json``, from the other files in the folder, read by a class of tokenizers."""
    tokenizer = kind.from_pretrained(folder, local_files_only=True)
    tokenizer.backend_tokenizer.save(str(folder / "tokenizer.json"))


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
