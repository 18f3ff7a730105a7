"""Features against the encoder run on one padded input at a time; in bfloat16, which token probes
multiply in, by scores.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from papa.errors import DataError
from papa.models.encoder import Encoder, load_encoder
from papa.models.reference import EncoderReference, has_bfloat16
from papa.probes.evaluate import build_probe
from papa.probes.features import WordEmbeddings, compute_features, values_shape
from papa.spec import TaskSpec
from papa.text.batches import micro_batch
from papa.text.corpus import TokenisedCorpus
from tests.probes.conftest import Cell, scores

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
    assert features.values.shape == values_shape(encoder, split)
    assert len(features.values) == int(features.offsets[-1])
    for row in range(0, len(split), 7):
        batch, own = micro_batch(split, [row]), slice(*features.offsets[row : row + 2].tolist())
        with torch.inference_mode():
            alone = torch.stack(encoder.token_states(batch), dim=1)
        slot_ids, labels = batch.columns, torch.from_numpy(split.labels_of([row]))
        if split.label_per_token:
            kept = labels != -100
            alone, slot_ids, labels = alone[kept], slot_ids[kept], labels[kept]
        torch.testing.assert_close(features.values[own], alone, atol=2e-5, rtol=1e-5)
        assert torch.equal(features.slot_ids[own].long(), slot_ids)
        found = features.labels[own] if split.label_per_token else features.labels[row : row + 1]
        assert torch.equal(found, labels)


def test_a_split_without_labelled_tokens_is_an_error(
    encoder: Encoder, corpora: dict[str, TokenisedCorpus], monkeypatch: pytest.MonkeyPatch
) -> None:
    split = corpora["wnut17"].split("train")
    monkeypatch.setitem(split.__dict__, "labels", np.full_like(split.labels, -100))
    with pytest.raises(DataError, match="the train split has no labelled token"):
        values_shape(encoder, split)


needs_bfloat16 = pytest.mark.skipif(
    not has_bfloat16(), reason="this CPU does not multiply in bfloat16"
)

SPLITS = ("train", "validation")


@pytest.fixture(scope="module")
def pos(tasks: dict[str, TaskSpec], shared: Path) -> TaskSpec:
    """Parts of speech: a token task that a few rows teach something."""
    files = {split: shared / "data" / "ud_ewt" / f"{split}.jsonl" for split in SPLITS}
    changes = {
        "source": {"kind": "files", **files},
        "columns": {"words": "tokens", "label": "pos_tags"},
        "metric": "token_f1",
    }
    return TaskSpec.model_validate(tasks["wnut17"].model_dump() | changes)


@pytest.fixture(scope="module")
def words(pos: TaskSpec, corpus_of: Callable[..., TokenisedCorpus]) -> TokenisedCorpus:
    return corpus_of("wnut17", source=pos.source, columns=pos.columns, metric=pos.metric)


@needs_bfloat16
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_what_a_probe_multiplies_in_follows_from_the_key_and_not_from_the_device(
    device: str, reference: EncoderReference, words: TokenisedCorpus, pos: TaskSpec
) -> None:
    model = load_encoder(reference).model
    for precision in ("float32", "bfloat16"):
        encoder = Encoder(model, device, precision)
        for features_of in (encoder, WordEmbeddings(encoder)):
            probe: Any = build_probe(features_of, words, pos, (0, 1))
            assert probe.dense.dtype == getattr(torch, precision)


@needs_bfloat16
def test_features_are_stored_as_the_study_says(
    reference: EncoderReference, cell: Cell, words: TokenisedCorpus, pos: TaskSpec, tmp_path: Path
) -> None:
    """In bfloat16 they take half the disk, for the same scores to the last bit: the probe rounds
    what it reads. Scores are near those in float32.
    """
    half, found = load_encoder(replace(reference, precision="bfloat16")), {}
    for dtype in ("float32", "bfloat16"):
        sizes = set[int]()

        def look(done: int, total: int, sizes: set[int] = sizes) -> None:
            sizes.update(path.stat().st_size for path in tmp_path.rglob("*.bin"))

        found[dtype] = scores(cell(pos, words, half, dtype=dtype, cell={"progress": look}))
        numbers = np.prod(values_shape(half, words.split("train")))
        assert sizes == {numbers * getattr(torch, dtype).itemsize}
    assert found["float32"].tolist() == found["bfloat16"].tolist()
    streamed, full = scores(cell(pos, words, half, budget=0)), scores(cell(pos, words))
    assert full.min() > 0.3
    assert streamed == pytest.approx(found["float32"], abs=0.02)
    assert found["float32"] == pytest.approx(full, abs=0.03)
