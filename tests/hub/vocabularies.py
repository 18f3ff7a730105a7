"""Small vocabularies, trained on the spot, in the file formats that encoders are published with."""

from __future__ import annotations

import io
from functools import cache
from pathlib import Path
from typing import Any

import sentencepiece
from tokenizers import ByteLevelBPETokenizer
from transformers import AutoTokenizer

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


def write_wordpieces(folder: Path, special_tokens: tuple[str, ...] = WORDPIECES) -> None:
    """``vocab.txt``."""
    words = dict.fromkeys(
        word.strip(",:") for sentence in SENTENCES for word in sentence.lower().split()
    )
    letters = "abcdefghijklmnopqrstuvwxyz,:"
    pieces = [*special_tokens, *letters, *(f"##{letter}" for letter in letters), *words]
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
