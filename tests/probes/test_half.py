"""Token probes whose dense map multiplies in bfloat16, against float64 of the same rounded numbers,
and by scores.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from papa.corpora import TokenisedCorpus
from papa.encoders.encoder import Encoder, load_encoder
from papa.encoders.precision import has_bfloat16
from papa.encoders.reference import EncoderReference
from papa.probes.evaluate import build_probe
from papa.probes.features import WordEmbeddings, feature_bytes
from papa.probes.probes import TokenProbe
from papa.spec import Precision, TaskSpec
from tests.probes.conftest import evaluated, scores

pytestmark = pytest.mark.skipif(not has_bfloat16(), reason="this CPU does not multiply in bfloat16")

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


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_what_a_probe_multiplies_in_follows_from_the_key_and_not_from_the_device(
    precision: Precision, reference: EncoderReference, words: TokenisedCorpus, pos: TaskSpec
) -> None:
    model = load_encoder(reference).model
    for device in ("cpu", "meta"):
        encoder = Encoder(model, device, precision)
        for features_of in (encoder, WordEmbeddings(encoder)):
            probe = build_probe(features_of, words, pos, (0, 1))
            assert isinstance(probe, TokenProbe)
            assert probe.dense.dtype == getattr(torch, precision)


def test_features_are_stored_as_the_study_says(
    reference: EncoderReference,
    encoder: Encoder,
    words: TokenisedCorpus,
    pos: TaskSpec,
    tmp_path: Path,
) -> None:
    """In bfloat16 they take half the disk, for the same scores to the last bit: the probe rounds
    what it reads. Scores are near those in float32.
    """
    half, found = load_encoder(replace(reference, precision="bfloat16")), {}
    for dtype in ("float32", "bfloat16"):
        sizes = set[int]()

        def look(done: int, total: int, sizes: set[int] = sizes) -> None:
            sizes.update(path.stat().st_size for path in tmp_path.rglob("*.bin"))

        cell = {"progress": look}
        found[dtype] = scores(evaluated(half, words, pos, tmp_path, dtype=dtype, cell=cell))
        assert sizes == {feature_bytes(half, words.split("train"), dtype)}
    assert found["float32"].tolist() == found["bfloat16"].tolist()
    streamed = scores(evaluated(half, words, pos, tmp_path, budget=0))
    full = scores(evaluated(encoder, words, pos, tmp_path))
    assert full.min() > 0.3
    assert streamed == pytest.approx(found["float32"], abs=0.02)
    assert found["float32"] == pytest.approx(full, abs=0.03)
