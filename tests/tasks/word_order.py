"""Texts of a few words, whose label says which of red and blue comes first; and models of them."""

import random
from functools import cache
from pathlib import Path

from transformers import AutoTokenizer, BatchEncoding, PreTrainedTokenizerBase

from papa.models.reference import embedded_folder
from tests.corpora.reviews import write_rows
from tests.make import SIZES, Settings

WORDS = ("red", "blue", "green", "dog", "cat", "sun", "tree", "door")
NAMES = ("blue before red", "red before blue")
LABELS: Settings = {"id2label": {0: NAMES[0], 1: NAMES[1]}, "label2id": {NAMES[0]: 0, NAMES[1]: 1}}
SHAPE = SIZES | {
    "num_hidden_layers": 2,
    "vocab_size": 30522,
    "max_position_embeddings": 32,
    "initializer_range": 0.02,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
"""Of a BERT that learns them."""
SHARP = SHAPE | {"initializer_range": 0.35}
"""Of a random BERT whose attention is far from uniform."""


def rows(count: int, seed: int) -> list[dict[str, str]]:
    draw = random.Random(seed)
    drawn_rows = []
    for _ in range(count):
        words = draw.sample(WORDS, draw.randint(4, 8))
        words = [*dict.fromkeys([*words, "red", "blue"])]
        draw.shuffle(words)
        label = NAMES[words.index("red") < words.index("blue")]
        drawn_rows.append({"text": " ".join(words), "label": label})
    return drawn_rows


def write_splits(folder: Path, count: int) -> Path:
    """Write a JSON Lines file each split."""
    write_rows(folder / "train.jsonl", rows(count, seed=1))
    write_rows(folder / "validation.jsonl", rows(count, seed=2))
    return folder


@cache
def tokenizer() -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(embedded_folder())


def padded(texts: list[str]) -> BatchEncoding:
    return tokenizer()(texts, padding=True, return_tensors="pt")
