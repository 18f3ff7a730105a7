"""Extracted features against the encoder run on one padded input at a time."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from papa.corpora import TokenisedCorpus
from papa.corpora.batches import micro_batch
from papa.encoders.encoder import Encoder
from papa.errors import DataError
from papa.probes import features as module
from papa.probes.features import DiskSpaceError, compute_features, count_tokens, extract_features

TASKS = ["cola", "rte", "wnut17", "wikitext"]


def extracted(encoder: Encoder, corpus: TokenisedCorpus, path: Path, **options: Any) -> Any:
    settings: dict[str, Any] = {"batch_tokens": 512, "dtype": "float32"}
    return extract_features(encoder, corpus.split("train"), path, **{**settings, **options})


@pytest.mark.parametrize("task", TASKS)
def test_features_are_those_of_each_input_alone(
    task: str, encoder: Encoder, corpora: dict[str, TokenisedCorpus], tmp_path: Path
) -> None:
    corpus = corpora[task]
    split = corpus.split("train")
    features = extracted(encoder, corpus, tmp_path / "values.bin")
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


def test_the_file_holds_the_bare_numbers(
    encoder: Encoder, corpora: dict[str, TokenisedCorpus], tmp_path: Path
) -> None:
    features = extracted(encoder, corpora["cola"], tmp_path / "values.bin")
    on_disk = np.memmap(
        tmp_path / "values.bin", dtype=np.float32, mode="r", shape=tuple(features.values.shape)
    )
    assert np.array_equal(on_disk, features.values.numpy())


def test_batch_tokens_do_not_change_features(
    encoder: Encoder, corpora: dict[str, TokenisedCorpus], tmp_path: Path
) -> None:
    small = extracted(encoder, corpora["cola"], tmp_path / "small.bin", batch_tokens=64)
    large = extracted(encoder, corpora["cola"], tmp_path / "large.bin", batch_tokens=2048)
    torch.testing.assert_close(small.values, large.values, atol=2e-5, rtol=1e-5)


def test_progress_ends_at_all_rows(
    encoder: Encoder, corpora: dict[str, TokenisedCorpus], tmp_path: Path
) -> None:
    told: list[tuple[int, int]] = []
    extracted(
        encoder, corpora["cola"], tmp_path / "v.bin", progress=lambda *both: told.append(both)
    )
    assert told[-1] == (64, 64)
    assert [done for done, _ in told] == sorted({done for done, _ in told})


class Usage(NamedTuple):
    total: int
    used: int
    free: int


def test_a_full_disk_is_said_before_the_encoder_runs(
    encoder: Encoder,
    corpora: dict[str, TokenisedCorpus],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**9, 10**9 - 10**6, 10**6))
    monkeypatch.setattr(encoder, "token_states", lambda _: pytest.fail("the encoder ran"))
    with pytest.raises(
        DiskSpaceError, match=r"has 0\.00 GB free, the features of one cell need 0\.01 GB"
    ):
        extracted(encoder, corpora["rte"], tmp_path / "values.bin")
    assert not list(tmp_path.iterdir())


def test_a_disk_that_fills_while_the_file_is_reserved(
    encoder: Encoder,
    corpora: dict[str, TokenisedCorpus],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(file: int, size: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "_reserve", full)
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
