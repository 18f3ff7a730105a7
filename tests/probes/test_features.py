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

from papa.corpora import TokenisedCorpus
from papa.corpora.batches import micro_batch
from papa.encoders.encoder import Encoder
from papa.errors import DataError
from papa.probes.features import DiskSpaceError, compute_features, extract_features
from papa.probes.packed import PackedFeatures, count_tokens, pack_states

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


@pytest.mark.parametrize("task", TASKS)
def test_features_of_some_rows_are_the_same_rows(
    task: str, encoder: Encoder, corpora: dict[str, TokenisedCorpus], tmp_path: Path
) -> None:
    corpus = corpora[task]
    whole = extracted(encoder, corpus, tmp_path / "values.bin")
    rows = np.array([1, 4, 5, 17, 20])
    part = compute_features(
        encoder,
        corpus.split("train"),
        rows,
        batch_tokens=512,
        dtype="float32",
    )
    expected = whole.select(torch.from_numpy(rows))
    torch.testing.assert_close(part.values, expected.values, atol=2e-5, rtol=1e-5)
    for name in ("offsets", "slot_ids", "labels"):
        assert torch.equal(getattr(part, name), getattr(expected, name))
    # Negative control: other rows have other features.
    other = whole.select(torch.from_numpy(rows[::-1].copy()))
    assert not torch.allclose(part.values, other.values, atol=1e-2)


def test_bfloat16_takes_half_the_disk(
    encoder: Encoder, corpora: dict[str, TokenisedCorpus], tmp_path: Path
) -> None:
    full = extracted(encoder, corpora["cola"], tmp_path / "full.bin")
    half = extracted(encoder, corpora["cola"], tmp_path / "half.bin", dtype="bfloat16")
    assert (tmp_path / "half.bin").stat().st_size * 2 == (tmp_path / "full.bin").stat().st_size
    torch.testing.assert_close(half.values.float(), full.values, atol=1e-2, rtol=1e-2)


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


def three_rows(token_labels: bool) -> PackedFeatures:
    """Rows of 2, 0 and 3 tokens."""
    return PackedFeatures(
        values=torch.arange(5.0)[:, None, None].expand(5, 2, 3).clone(),
        offsets=torch.tensor([0, 2, 2, 5]),
        slot_ids=torch.tensor([0, 1, 0, 4, 5]),
        labels=torch.arange(10, 15) if token_labels else torch.arange(10, 13),
        token_labels=token_labels,
    )


def test_tokens_are_found_in_the_order_of_rows() -> None:
    tokens, positions = three_rows(True).tokens_of(torch.tensor([2, 1, 0, 2]))
    assert tokens.tolist() == [2, 3, 4, 0, 1, 2, 3, 4]
    assert positions.tolist() == [0, 0, 0, 2, 2, 3, 3, 3]
    tokens, positions = three_rows(True).tokens_of(torch.tensor([1, 1]))
    assert tokens.tolist() == positions.tolist() == []


def test_selected_rows_keep_their_tokens_and_labels() -> None:
    chosen = torch.tensor([2, 1])
    by_token = three_rows(True).select(chosen)
    assert by_token.offsets.tolist() == [0, 3, 3]
    assert by_token.values[:, 0, 0].tolist() == [2, 3, 4]
    assert by_token.slot_ids.tolist() == [0, 4, 5]
    assert by_token.labels.tolist() == [12, 13, 14]
    assert three_rows(False).select(chosen).labels.tolist() == [12, 11]


def test_gradients_flow_through_a_packed_batch(
    encoder: Encoder, corpora: dict[str, TokenisedCorpus]
) -> None:
    corpus = corpora["cola"]
    batch = micro_batch(corpus.split("train"), [3, 5])
    token_states = [layer.requires_grad_() for layer in encoder.token_states(batch)]
    count = int(batch.attention_mask.sum())
    kept = torch.arange(count) % 3 > 0
    packed = pack_states(token_states, kept.numpy())
    assert packed.shape == (int(kept.sum()), encoder.layers + 1, encoder.width)
    assert pack_states(token_states, None).shape == (count, encoder.layers + 1, encoder.width)
    packed.sum().backward()
    for layer in token_states:
        assert layer.grad is not None
        assert torch.equal(layer.grad[..., 0], kept.float())
