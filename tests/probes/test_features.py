"""Extracted features against the encoder run on one padded input at a time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from papa.corpora import TokenisedCorpus
from papa.corpora.batches import micro_batch
from papa.encoders.encoder import Encoder
from papa.errors import DataError
from papa.probes.features import compute_features
from papa.probes.packed import count_tokens

TASKS = ["cola", "rte", "wnut17", "wikitext"]


@pytest.mark.parametrize(
    ("task", "batch_tokens"), [*((task, 512) for task in TASKS), ("cola", 64), ("cola", 2048)]
)
def test_features_are_those_of_each_input_alone(
    task: str,
    batch_tokens: int,
    encoder: Encoder,
    corpora: dict[str, TokenisedCorpus],
    tmp_path: Path,
) -> None:
    split, path = corpora[task].split("train"), tmp_path / "values.bin"
    features = compute_features(encoder, split, batch_tokens, "float32", file=path)
    assert path.stat().st_size == features.values.nbytes
    assert len(features.values) == count_tokens(split) == int(features.offsets[-1])
    for row in range(0, len(split), 7):
        batch, own = micro_batch(split, [row]), slice(*features.offsets[row : row + 2].tolist())
        with torch.inference_mode():
            alone = torch.stack([layer[0] for layer in encoder.hidden_states(batch)], dim=1)
        slot_ids, labels = batch.columns, torch.from_numpy(split.labels_of([row]))
        if split.label_per_token:
            kept = labels != -100
            alone, slot_ids, labels = alone[kept], slot_ids[kept], labels[kept]
        torch.testing.assert_close(features.values[own], alone, atol=2e-5, rtol=1e-5)
        assert torch.equal(features.slot_ids[own].long(), slot_ids)
        found = features.labels[own] if split.label_per_token else features.labels[row : row + 1]
        assert torch.equal(found, labels)


def test_a_split_without_labelled_tokens_is_an_error(
    corpora: dict[str, TokenisedCorpus], monkeypatch: pytest.MonkeyPatch
) -> None:
    split = corpora["wnut17"].split("train")
    monkeypatch.setitem(split.__dict__, "labels", np.full_like(split.labels, -100))
    with pytest.raises(DataError, match="the train split has no labelled token"):
        count_tokens(split)
