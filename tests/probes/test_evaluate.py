"""Scores of cells on real text: features stored or streamed, dropout, and constants."""

import errno
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from papa.cores import WorkerCores, map_in_threads
from papa.errors import PapaError
from papa.heads.average import average_of, average_split
from papa.heads.constants import control
from papa.heads.replacement import replaced
from papa.models.encoder import Encoder
from papa.probes.chunks import probe_loss, train_in_chunks
from papa.probes.evaluate import build_probe, unseen_by
from papa.probes.features import WINDOW_ROWS, WordEmbeddings
from papa.spec import Columns, EmbeddedSource
from papa.text.batches import MicroBatch, micro_batch
from papa.text.corpus import TokenisedSplit
from tests.probes.conftest import (
    HEADS,
    LAYERS,
    Cell,
    Corpora,
    CorpusOf,
    Tasks,
    counted_passes,
    scores,
    with_probe,
)

pytestmark = pytest.mark.unchecked

SPLITS = ("train", "validation")
REVIEWS: dict[str, object] = {
    "source": EmbeddedSource(kind="embedded"),
    "columns": Columns(text="text", label="label"),
    "metric": "accuracy",
}


@pytest.mark.parametrize(
    ("task", "window"),
    [("reviews", 16), ("review_pairs", 16), ("wnut17", 16), ("wikitext", WINDOW_ROWS)],
)
def test_streamed_features_give_the_scores_of_stored_ones(
    task: str,
    window: int,
    cell: Cell,
    encoder: Encoder,
    corpora: Corpora,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("papa.probes.features.WINDOW_ROWS", window)
    with counted_passes(encoder) as stored_passes:
        stored = cell(task)
    with counted_passes(encoder) as streamed_passes:
        streamed = cell(task, budget=0)
    np.testing.assert_allclose(scores(stored), scores(streamed), atol=1e-4)
    if task == "wikitext":
        monkeypatch.setattr("papa.probes.features.WINDOW_ROWS", 8)
        other_order = scores(cell(task)) - scores(stored)
        assert np.abs(other_order).min() > 1e-3, "negative control"
    train_rows, validation_rows = (len(corpora[task].split(name)) for name in SPLITS)
    assert sum(stored_passes) == train_rows + validation_rows, "one pass for all seeds and epochs"
    assert sum(streamed_passes) == 2 * train_rows + validation_rows


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("name", ["reviews", "wnut17", "wikitext"])
def test_seeds_score_alone_as_together(name: str, trained: bool, cell: Cell, tasks: Tasks) -> None:
    constants = control("toeplitz", LAYERS, 12, tasks[name].slots)

    scored = partial(cell, name, epochs=1, constants=constants, heads=HEADS, trained=trained)
    separate = np.concatenate([scores(scored(seeds=[seed])) for seed in (7, 3)])
    np.testing.assert_array_equal(scores(scored(seeds=[7, 3])), separate)
    assert name != "wikitext" or abs(separate[0] - separate[1]) > 1e-3


@pytest.mark.parametrize("budget", [1, 0])
@pytest.mark.parametrize("name", ["reviews", "wnut17"])
def test_a_cell_on_unused_cores_has_the_same_scores(
    name: str,
    budget: int,
    cell: Cell,
    tasks: Tasks,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    constants = control("toeplitz", LAYERS, 12, tasks[name].slots)
    learners_at_once: list[int] = []

    def count_learners(function: Any, learners: Sequence[Any]) -> list[Any]:
        learners_at_once.append(len(learners))
        return map_in_threads(function, learners)

    monkeypatch.setattr("papa.probes.training.map_in_threads", count_learners)
    scored = partial(
        cell,
        name,
        seeds=(0, 1, 2),
        budget=budget,
        epochs=1,
        constants=constants,
        heads=HEADS[::2],
    )
    single_core = scored()
    assert {*learners_at_once} == {1}
    with WorkerCores(tmp_path, 0, 2).used():
        beside = scored()
    assert max(learners_at_once) == 2, "negative control: threads compute side by side"
    for expected, on_two_cores in zip(single_core, beside, strict=True):
        np.testing.assert_array_equal(expected.examples, on_two_cores.examples)


def test_text_is_learned(
    cell: Cell, corpus_of: CorpusOf, tasks: Tasks, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against features that say nothing; the probe never reads the split it is scored on."""
    corpus = corpus_of("reviews", REVIEWS | {"train_rows": 300, "validation_rows": 150})
    task = tasks["reviews"].model_copy(update={"metric": "accuracy"})

    def says_nothing(batch: MicroBatch) -> list[torch.Tensor]:
        return [torch.zeros(len(batch.input_ids), encoder.width)] * (encoder.layers + 1)

    learned = scores(cell(task, corpus, epochs=20))
    monkeypatch.setattr(encoder, "token_states", says_nothing)
    control = scores(cell(task, corpus))
    assert learned.min() > max(0.6, control.max() + 0.05), (learned, control)
    assert learned.max() < 0.9, "a probe that had seen these rows would know nearly all"
    assert control.max() < 0.58, control


def test_features_of_word_embeddings_see_no_attention(
    cell: Cell, encoder: Encoder, corpora: Corpora
) -> None:
    split = corpora["review_pairs"].split("validation")
    model = WordEmbeddings(encoder)
    (states,) = model.token_states(micro_batch(split, [3, 0, 7]))
    ids = torch.from_numpy(split.tokens([3, 0, 7]).input_ids).long()
    torch.testing.assert_close(states, encoder.word_embeddings[ids], rtol=0, atol=0)
    stored = cell("wikitext", model=model)
    with replaced(encoder, control("zeros", LAYERS, 12, 32), HEADS):
        after = cell("wikitext", model=model)
    for before_change, after_change in zip(stored, after, strict=True):
        np.testing.assert_array_equal(before_change.examples, after_change.examples)
    for budget, dropout in ((0, False), (1, True)):
        scored = cell("wikitext", model=model, budget=budget, dropout=dropout)
        np.testing.assert_allclose(scores(scored), scores(stored), atol=1e-4)
    assert np.abs(scores(cell("wikitext")) - scores(stored)).min() > 1e-3, "negative control"


def test_dropout_is_active_while_training_only(cell: Cell, encoder: Encoder) -> None:
    modes: list[bool] = []
    hook = encoder.model.register_forward_pre_hook(lambda module, _: modes.append(module.training))
    state = torch.random.get_rng_state()
    try:
        with counted_passes(encoder) as passes:
            dropped = scores(cell("wikitext", dropout=True))
    finally:
        hook.remove()
    # Two epochs of 24 rows anew, 10 validation rows once.
    assert sum(passes) == 2 * 24 + 10
    assert sum(count for count, training in zip(passes, modes, strict=True) if not training) == 10
    assert not any(module.training for module in encoder.model.modules())
    assert torch.equal(torch.random.get_rng_state(), state)
    repeated = scores(cell("wikitext", dropout=True))
    np.testing.assert_allclose(dropped, repeated, atol=1e-6)
    streamed = scores(cell("wikitext", dropout=True, budget=0))
    np.testing.assert_allclose(dropped, streamed, atol=1e-4)
    assert np.abs(dropped - scores(cell("wikitext"))).min() > 1e-3


def test_an_interrupted_cell_leaves_nothing_in_scratch(cell: Cell, tmp_path: Path) -> None:
    scratch_sizes: set[int] = set()

    def interrupt(done: int, total: int) -> None:
        scratch_sizes.add(len(list((tmp_path / "scratch").rglob("*.bin"))))
        if done > total / 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cell("reviews", progress=interrupt)
    assert scratch_sizes == {1}
    assert not list((tmp_path / "scratch").iterdir())


def test_a_full_disk_is_noticed_before_anything_runs(
    cell: Cell, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    refused = pytest.raises(PapaError, match=r"execution\.features_budget_gb")
    with counted_passes(encoder) as passes, refused:
        cell("reviews")
    assert not passes
    assert len(cell("reviews", budget=0)) == 2


@pytest.mark.parametrize(("budget", "dropout"), [(1, False), (0, False), (1, True)])
def test_a_cell_sees_its_constants_with_those_around_it(
    budget: float, dropout: bool, cell: Cell, encoder: Encoder
) -> None:
    identity = control("identity", LAYERS, 12, 32)
    scored = partial(cell, "wikitext", seeds=(0,), budget=budget, dropout=dropout)
    before = scores(scored())
    with replaced(encoder, identity, HEADS[::2]):
        inside = scores(scored())
    assert np.abs(inside - before).min() > 1e-3
    in_cell = scores(scored(constants=identity, heads=HEADS[::2]))
    np.testing.assert_allclose(in_cell, inside, atol=1e-6)
    np.testing.assert_allclose(scores(scored()), before, atol=1e-6)


def trained_matrices(encoder: Encoder, corpora: Corpora, tasks: Tasks) -> torch.Tensor:
    """Toeplitz matrices, trained with a probe while the first 18 heads use them."""
    start = control("toeplitz", LAYERS, 12, 64)
    corpus = corpora["reviews"]
    task = with_probe(tasks["reviews"], epochs=1, batch_size=16, learning_rate=1e-2)
    matrices = torch.nn.Parameter(start.matrices.clone())
    split = corpus.split("train")
    probe = build_probe(encoder, corpus, task, [0])
    with replaced(encoder, start.with_values(matrices), HEADS[:18]):
        train_in_chunks(
            [{"params": [matrices]}],
            lambda running: probe_loss(running, probe, split, dropout=False),
            encoder,
            split,
            task.probe,
            seed=0,
            rows=np.arange(32),
        )
    return matrices.detach()


def test_training_moves_only_constant_heads(
    encoder: Encoder, corpora: Corpora, tasks: Tasks
) -> None:
    trained = trained_matrices(encoder, corpora, tasks)
    start = control("toeplitz", LAYERS, 12, 64).matrices
    moved = (trained - start).abs().amax(dim=(2, 3)).flatten()
    assert bool((moved[:18] > 1e-3).all())
    assert not moved[18:].any()
    assert all(parameter.grad is None for parameter in encoder.model.parameters())


def test_trained_constants_are_the_same_on_two_cores(
    encoder: Encoder,
    corpora: Corpora,
    tasks: Tasks,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    twins = list[Encoder]()
    twin = Encoder.twin
    monkeypatch.setattr(Encoder, "twin", lambda self: twins.append(twin(self)) or twins[-1])
    monkeypatch.setattr("papa.probes.chunks.chunk_tokens", lambda device: 64)
    on_one = trained_matrices(encoder, corpora, tasks)
    assert not twins
    with WorkerCores(tmp_path, 0, 2).used():
        assert torch.equal(trained_matrices(encoder, corpora, tasks), on_one)
    assert len(twins) == 1, "the unused core was used"


def pairs(split: TokenisedSplit) -> list[tuple[int, int]]:
    """Every pair of slots that an input of the split has tokens at, input by input."""
    slots = [split.tokens([row]).slot_ids.tolist() for row in split.rows.tolist()]
    return [(first_slot, second_slot) for row in slots for first_slot in row for second_slot in row]


@pytest.mark.parametrize("changes", [{"train_rows": 6}, {**REVIEWS, "train_rows": 1}])
def test_the_unseen_share_is_of_pairs_of_slots(
    changes: dict[str, object], encoder: Encoder, corpus_of: CorpusOf, corpora: Corpora
) -> None:
    """An average over few texts, of the task or of shorter reviews, against a count by hand."""
    over = corpus_of("reviews", changes).split("train")
    scored = corpora["reviews"].split("validation")
    constants = average_of(average_split(encoder, over, slots=64, batch_tokens=512))
    averaged_pairs = set(pairs(over))
    read = pairs(scored)
    expected = sum(pair not in averaged_pairs for pair in read) / len(read)
    assert 0.001 < expected < 0.999
    assert unseen_by(constants, scored) == expected
    assert unseen_by(control("toeplitz", LAYERS, 12, 64), scored) == 0
