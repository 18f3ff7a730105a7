"""Extracted features against the encoder run on one padded input at a time, and packed ones by
hand.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from papa.corpora.batches import micro_batch
from papa.corpora.corpus import TokenisedCorpus
from papa.encoders.encoder import Encoder
from papa.errors import DataError
from papa.probes.features import DiskSpaceError, extract_features
from papa.probes.packed import count_tokens

TASKS = ["cola", "rte", "wnut17", "wikitext"]


def extracted(encoder: Encoder, corpus: TokenisedCorpus, path: Path, **options: Any) -> Any:
    settings: dict[str, Any] = {"batch_tokens": 512, "dtype": "float32"}
    return extract_features(encoder, corpus.split("train"), path, **{**settings, **options})


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
    corpus = corpora[task]
    split = corpus.split("train")
    features = extracted(encoder, corpus, tmp_path / "values.bin", batch_tokens=batch_tokens)
    assert len(features.values) == count_tokens(split) == int(features.offsets[-1])
    for row in range(0, len(split), 7):
        batch = micro_batch(split, [row])
        with torch.inference_mode():
            alone = torch.stack([layer[0] for layer in encoder.hidden_states(batch)], dim=1)
        slot_ids = batch.columns
        if split.label_per_token:
            labels = torch.from_numpy(split.labels[split.offsets[row] : split.offsets[row + 1]])
            alone, slot_ids, labels = (
                alone[labels != -100],
                slot_ids[labels != -100],
                labels[labels != -100],
            )
            start, end = features.offsets[row : row + 2]
            assert torch.equal(features.labels[start:end], labels)
        else:
            assert features.labels[row] == split.labels[row]
        found = features.values[features.offsets[row] : features.offsets[row + 1]]
        torch.testing.assert_close(found, alone, atol=2e-5, rtol=1e-5)
        assert torch.equal(
            features.slot_ids[features.offsets[row] : features.offsets[row + 1]].long(), slot_ids
        )


@pytest.mark.parametrize("reserves", [True, False])
def test_a_disk_that_fills_while_the_file_is_reserved(
    encoder: Encoder,
    corpora: dict[str, TokenisedCorpus],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    reserves: bool,
) -> None:
    def refused(code: int) -> Callable[..., None]:
        def refuse(*given: int) -> None:
            raise OSError(code, os.strerror(code))

        return refuse

    full = refused(errno.ENOSPC)
    monkeypatch.setattr(os, "posix_fallocate", full if reserves else refused(errno.EOPNOTSUPP))
    monkeypatch.setattr(os, "truncate", full)
    with pytest.raises(
        DiskSpaceError, match=r"refused \(No space left on device\), the features of one cell"
    ):
        extracted(encoder, corpora["cola"], tmp_path / "values.bin")
    assert not list(tmp_path.iterdir())


def test_a_split_without_labelled_tokens_is_an_error(
    corpora: dict[str, TokenisedCorpus], monkeypatch: pytest.MonkeyPatch
) -> None:
    split = corpora["wnut17"].split("train")
    monkeypatch.setitem(split.__dict__, "labels", np.full_like(split.labels, -100))
    with pytest.raises(DataError, match="the train split has no labelled token"):
        count_tokens(split)
