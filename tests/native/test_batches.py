"""How many texts a native head takes at once."""

import numpy as np
import pytest
import torch

from papa.native.batches import BATCH_TEXTS, MOST_TOKENS, InMemoryTexts


def texts_of(length: int, count: int, name: str = "input_ids") -> InMemoryTexts:
    """So many texts of a model in memory, of so many tokens each."""
    values = torch.ones(1, length, dtype=torch.int64)
    return InMemoryTexts([{name: values}] * count, padding={})


@pytest.mark.parametrize(
    ("length", "expected"),
    [(8, [BATCH_TEXTS, 4]), (MOST_TOKENS // 6, [6, 6, 4, 4]), (MOST_TOKENS + 1, [1] * 20)],
)
def test_a_batch_of_texts_in_memory_has_as_many_as_their_tokens_allow(
    length: int, expected: list[int]
) -> None:
    texts = texts_of(length, count=20)
    batches = list(texts.batches())
    assert [len(batch.rows) for batch in batches] == expected
    rows = np.concatenate([batch.rows for batch in batches])
    assert sorted(rows) == list(range(20)), "each text once"


def test_images_are_taken_together_whatever_their_size() -> None:
    images = texts_of(MOST_TOKENS + 1, count=20, name="pixel_values")
    assert [len(batch.rows) for batch in images.batches()] == [BATCH_TEXTS, 4]
