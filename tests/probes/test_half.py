"""Token probes whose dense map multiplies in bfloat16, against float64 of the same rounded numbers,
and by scores.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from papa.corpora import TokenisedCorpus
from papa.encoders.encoder import Encoder, load_encoder
from papa.encoders.precision import has_bfloat16
from papa.encoders.reference import EncoderReference
from papa.probes.evaluate import build_probe, evaluate_cell
from papa.probes.features import WordEmbeddings, compute_features, feature_bytes
from papa.probes.packed import PackedFeatures
from papa.probes.probes import SeedLinear, SequenceProbe, TokenProbe, generators_of
from papa.probes.training import adamw, train_step
from papa.spec import Columns, ExecutionSpec, FeaturesSpec, FilesSource, Precision, TaskSpec

pytestmark = pytest.mark.skipif(not has_bfloat16(), reason="this CPU does not multiply in bfloat16")

ROUNDING = 2.0**-8
"""Bfloat16 keeps eight bits: rounding to it changes a number by 2⁻⁸ of itself at most."""
SEEDS = (0, 1)


@pytest.fixture(scope="module")
def half(reference: EncoderReference) -> Encoder:
    return load_encoder(replace(reference, precision="bfloat16"))


@pytest.fixture(scope="module")
def pos(tasks: dict[str, TaskSpec], shared: Path) -> TaskSpec:
    """Parts of speech: a token task that a few rows teach something."""
    folder = shared / "data" / "ud_ewt"
    files = FilesSource(
        kind="files", train=str(folder / "train.jsonl"), validation=str(folder / "validation.jsonl")
    )
    columns = Columns(words="tokens", label="pos_tags")
    return tasks["wnut17"].model_copy(
        update={"source": files, "columns": columns, "metric": "token_f1"}
    )


@pytest.fixture(scope="module")
def words(pos: TaskSpec, corpus_of: Callable[..., TokenisedCorpus]) -> TokenisedCorpus:
    return corpus_of("wnut17", source=pos.source, columns=pos.columns, metric=pos.metric)


@pytest.fixture(scope="module")
def features(half: Encoder, words: TokenisedCorpus) -> PackedFeatures:
    split = words.split("train")
    return compute_features(half, split, np.arange(16), batch_tokens=512, dtype="float32")


def linear(dtype: torch.dtype, inputs: int = 384, outputs: int = 48) -> SeedLinear:
    return SeedLinear(generators_of(SEEDS), inputs, outputs, dtype)


def test_its_products_and_gradients_are_those_of_rounded_numbers() -> None:
    """One rounding of what goes in, one of what comes out; sums in float32; parameters and
    gradients float32.
    """
    torch.manual_seed(0)
    x, of_outputs = torch.randn(2, 100, 384), torch.randn(2, 100, 48)
    half = linear(torch.bfloat16)
    found = half(x)
    found.backward(of_outputs)
    assert found.dtype == torch.float32
    assert half.weight.grad is not None
    assert half.weight.grad.dtype == half.weight.dtype == torch.float32
    rounded, weight, of = (
        x.bfloat16().double(),
        half.weight.detach().bfloat16().double(),
        of_outputs.bfloat16().double(),
    )

    def within(found: Tensor, left: Tensor, right: Tensor) -> bool:
        expected, absolutes = left @ right, left.abs() @ right.abs()
        bound = ROUNDING * expected.abs() + left.shape[-1] * 2.0**-24 * absolutes
        return bool(((found.detach().double() - expected).abs() <= bound).all())

    assert within(found, rounded, weight)
    assert within(half.weight.grad, rounded.mT, of)
    # Negative controls: numbers that were not rounded, and gradients of another order.
    assert not within(found, x.double(), half.weight.detach().double())
    assert not within(half.weight.grad, rounded.mT, of.flip(1))


def test_the_start_is_the_same_in_both_precisions() -> None:
    assert torch.equal(linear(torch.bfloat16).weight, linear(torch.float32).weight)


def trained(probe: TokenProbe, features: PackedFeatures, task: TaskSpec, steps: int = 20) -> Tensor:
    """The losses of every step."""
    optimizer = adamw(probe.parameters(), task.probe, 1e-3)
    rows = torch.arange(16).view(2, 8)
    losses = [
        train_step(probe, optimizer, features, rows, max_grad_norm=1.0)[0] for _ in range(steps)
    ]
    return torch.stack(losses)


def test_training_follows_float32(
    features: PackedFeatures, words: TokenisedCorpus, half: Encoder, pos: TaskSpec
) -> None:
    labels = len(words.label_names or ())
    found = build_probe(half, words, pos, SEEDS)
    assert isinstance(found, TokenProbe)
    plain, other = (
        TokenProbe(seeds, layers=half.layers + 1, width=half.width, labels=labels)
        for seeds in (SEEDS, (2, 3))
    )
    losses, expected = trained(found, features, pos), trained(plain, features, pos)
    assert all(parameter.dtype == torch.float32 for parameter in found.parameters())
    assert float(expected[-1].max()) < float(expected[0].min()) / 2
    difference = float((losses - expected).abs().max())
    assert 0 < difference < 0.1 * float((trained(other, features, pos) - expected).abs().max())


def scores(
    encoder: Encoder, corpus: TokenisedCorpus, task: TaskSpec, scratch: Path, budget: float = 1.0
) -> Sequence[float]:
    execution = ExecutionSpec(batch_tokens=512, features_budget_gb=budget)
    found = evaluate_cell(
        encoder, corpus, task, SEEDS, features=FeaturesSpec(), execution=execution, scratch=scratch
    )
    return [scored.score for scored in found]


def test_features_are_stored_as_the_study_says(
    half: Encoder, words: TokenisedCorpus, pos: TaskSpec, tmp_path: Path
) -> None:
    """In bfloat16 they take half the disk, for the same scores to the last bit: the probe rounds
    what it reads.
    """

    def stored(features: FeaturesSpec) -> tuple[list[float], set[int]]:
        sizes = set[int]()

        def look(done: int, total: int) -> None:
            sizes.update(path.stat().st_size for path in tmp_path.rglob("*.bin"))

        options: dict[str, Any] = {
            "execution": ExecutionSpec(batch_tokens=512),
            "scratch": tmp_path,
        }
        found = evaluate_cell(half, words, pos, SEEDS, features=features, progress=look, **options)
        return [scored.score for scored in found], sizes

    def bytes_in(dtype: Precision) -> set[int]:
        return {feature_bytes(half, words.split(name), dtype) for name in ("train", "validation")}

    (full, in_full), (rounded, in_half) = (
        stored(FeaturesSpec()),
        stored(FeaturesSpec(dtype="bfloat16")),
    )
    assert (in_full, in_half) == (bytes_in("float32"), bytes_in("bfloat16"))
    assert rounded == full
    assert scores(half, words, pos, tmp_path, budget=0) == pytest.approx(full, abs=0.02)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_what_a_probe_multiplies_in_follows_from_the_key_and_not_from_the_device(
    precision: Precision, reference: EncoderReference, words: TokenisedCorpus, pos: TaskSpec
) -> None:
    model = load_encoder(reference).model
    for device in ("cpu", "meta"):
        encoder = Encoder(model, device, precision)
        for features_of in (encoder, WordEmbeddings(encoder)):
            probe = build_probe(features_of, words, pos, SEEDS)
            assert isinstance(probe, TokenProbe)
            assert probe.dense.dtype == getattr(torch, precision)


@pytest.mark.parametrize("name", ["cola", "wikitext"])
def test_other_probes_keep_float32(
    name: str, half: Encoder, corpora: dict[str, TokenisedCorpus], tasks: dict[str, TaskSpec]
) -> None:
    probe = build_probe(half, corpora[name], tasks[name], SEEDS)
    assert probe.dense.dtype == torch.float32  # type: ignore[union-attr]
    assert isinstance(probe, SequenceProbe) == (name == "cola")


def test_scores_are_near_those_in_float32(
    half: Encoder, encoder: Encoder, words: TokenisedCorpus, pos: TaskSpec, tmp_path: Path
) -> None:
    full = scores(encoder, words, pos, tmp_path)
    assert min(full) > 0.3
    assert scores(half, words, pos, tmp_path) == pytest.approx(full, abs=0.03)
