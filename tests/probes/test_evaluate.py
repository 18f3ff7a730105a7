"""Cells on real text: stored and streamed features, dropout, learning, and what is left behind."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from papa.attention.constants import control
from papa.attention.replacement import replaced
from papa.corpora import TokenisedCorpus
from papa.corpora.batches import MicroBatch
from papa.encoders.encoder import Encoder
from papa.probes.evaluate import evaluate_cell
from papa.probes.features import DiskSpaceError
from papa.probes.minibatches import WINDOW_ROWS
from papa.probes.training import SeedScore
from papa.spec import (
    Columns,
    EmbeddedSource,
    ExecutionSpec,
    FeaturesSpec,
    FilesSource,
    TaskSpec,
)
from tests.probes.conftest import counted_passes

pytestmark = pytest.mark.unchecked

STORED, STREAMED = 1.0, 0.0
Cell = Callable[..., list[SeedScore]]


@pytest.fixture
def cell(
    encoder: Encoder,
    corpora: dict[str, TokenisedCorpus],
    tasks: dict[str, TaskSpec],
    tmp_path: Path,
) -> Cell:
    def run(
        name: str,
        seeds: Sequence[int] = (0, 1),
        budget: float = STORED,
        corpus: TokenisedCorpus | None = None,
        probe: dict[str, Any] | None = None,
        dtype: Any = "float32",
        **changes: Any,
    ) -> list[SeedScore]:
        progress = changes.pop("progress", lambda done, total: None)
        task = tasks[name].model_copy(update=changes)
        task = task.model_copy(update={"probe": task.probe.model_copy(update=probe or {})})
        return evaluate_cell(
            encoder,
            corpus or corpora[name],
            task,
            seeds,
            features=FeaturesSpec(dtype=dtype),
            execution=ExecutionSpec(batch_tokens=512, features_budget_gb=budget),
            scratch=tmp_path / "scratch",
            progress=progress,
        )

    return run


def says_nothing(encoder: Encoder, batch: MicroBatch) -> list[torch.Tensor]:
    """Features of a batch that are all 0."""
    return [torch.zeros(len(batch.input_ids), encoder.width)] * (encoder.layers + 1)


def scores(found: list[SeedScore]) -> np.ndarray:
    return np.array([scored.score for scored in found])


@pytest.mark.parametrize(
    ("task", "window"),
    [("cola", 16), ("rte", 16), ("wnut17", 16), ("wikitext", 16), ("wikitext", WINDOW_ROWS)],
)
def test_stored_and_streamed_features_give_the_same_scores(
    task: str, window: int, cell: Cell, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("papa.probes.minibatches.WINDOW_ROWS", window)
    with counted_passes(encoder) as stored_passes:
        stored = cell(task)
    with counted_passes(encoder) as streamed_passes:
        streamed = cell(task, budget=STREAMED)
    np.testing.assert_allclose(scores(stored), scores(streamed), atol=1e-4)
    rows = {"cola": (64, 30), "rte": (24, 8), "wnut17": (40, 20), "wikitext": (24, 10)}[task]
    assert sum(stored_passes) == rows[0] + rows[1]
    assert sum(streamed_passes) == 2 * rows[0] + rows[1]


def test_windows_change_the_order_and_so_the_scores(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control of the test above: its tolerance would not hide another order
    of rows.
    """
    wide = scores(cell("wikitext"))
    monkeypatch.setattr("papa.probes.minibatches.WINDOW_ROWS", 8)
    assert np.abs(scores(cell("wikitext")) - wide).min() > 1e-3


def test_one_pass_serves_every_seed_and_epoch(cell: Cell, encoder: Encoder) -> None:
    counts = []
    for seeds, epochs in (((0,), 1), ((0, 1, 2), 3)):
        with counted_passes(encoder) as passes:
            cell("cola", seeds=seeds, probe={"epochs": epochs})
        counts.append(len(passes))
    assert counts[0] == counts[1] > 1


def test_a_seeds_score_does_not_depend_on_the_seeds_beside_it(cell: Cell) -> None:
    together = scores(cell("wikitext"))
    alone = np.concatenate([scores(cell("wikitext", seeds=(seed,))) for seed in (0, 1)])
    np.testing.assert_allclose(together, alone, atol=1e-4)
    assert np.abs(np.diff(np.sort(together))).min() > 1e-4


def test_scores_come_in_the_order_of_seeds_with_their_share_of_time(cell: Cell) -> None:
    found = cell("cola", seeds=(7, 3))
    assert [scored.seed for scored in found] == [7, 3]
    assert all(scored.seconds > 0 for scored in found)
    np.testing.assert_array_equal(scores(found), scores(cell("cola", seeds=(3, 7)))[::-1])


def test_text_is_learned(
    cell: Cell,
    corpus_of: Callable[..., TokenisedCorpus],
    encoder: Encoder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Sentiment of the embedded reviews, against the same probe on features that say nothing."""
    corpus = corpus_of(
        "cola",
        source=EmbeddedSource(kind="embedded"),
        columns=Columns(text="text", label="label"),
        metric="accuracy",
        train_rows=300,
        validation_rows=150,
    )
    learned = scores(cell("cola", corpus=corpus, metric="accuracy"))
    monkeypatch.setattr(encoder, "token_states", lambda batch: says_nothing(encoder, batch))
    control = scores(cell("cola", corpus=corpus, metric="accuracy"))
    assert learned.min() > max(0.6, control.max() + 0.05), (learned, control)
    assert control.max() < 0.58, control


def test_words_are_learned(
    cell: Cell,
    corpus_of: Callable[..., TokenisedCorpus],
    encoder: Encoder,
    shared: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Parts of speech, against the same probe on features that say nothing."""
    folder = shared / "data" / "ud_ewt"
    source = FilesSource(
        kind="files", train=folder / "train.jsonl", validation=folder / "validation.jsonl"
    )
    columns = Columns(words="tokens", label="pos_tags")
    changes: dict[str, Any] = {"metric": "token_f1", "train_rows": 150, "validation_rows": 60}
    corpus = corpus_of("wnut17", source=source, columns=columns, **changes)
    metrics = ("token_f1", "bare_entity_f1")
    learned = {metric: scores(cell("wnut17", corpus=corpus, metric=metric)) for metric in metrics}
    monkeypatch.setattr(encoder, "token_states", lambda batch: says_nothing(encoder, batch))
    control = scores(cell("wnut17", corpus=corpus, metric="token_f1"))
    assert learned["token_f1"].min() > 0.7, learned
    assert learned["bare_entity_f1"].min() > 0.65, learned
    assert not np.array_equal(learned["token_f1"], learned["bare_entity_f1"])
    assert control.max() < 0.25


def test_dropout_is_active_while_training_only(cell: Cell, encoder: Encoder) -> None:
    modes: list[bool] = []
    hook = encoder.model.register_forward_pre_hook(lambda module, _: modes.append(module.training))
    state = torch.random.get_rng_state()
    try:
        with counted_passes(encoder) as passes:
            dropped = scores(cell("wikitext", probe={"encoder_dropout": True}))
    finally:
        hook.remove()
    # Two epochs of 24 rows anew, 10 validation rows once.
    assert sum(passes) == 2 * 24 + 10
    assert sum(count for count, training in zip(passes, modes, strict=True) if not training) == 10
    assert not any(module.training for module in encoder.model.modules())
    assert torch.equal(torch.random.get_rng_state(), state)
    again = scores(cell("wikitext", probe={"encoder_dropout": True}))
    np.testing.assert_allclose(dropped, again, atol=1e-6)
    streamed = scores(cell("wikitext", probe={"encoder_dropout": True}, budget=STREAMED))
    np.testing.assert_allclose(dropped, streamed, atol=1e-4)
    assert np.abs(dropped - scores(cell("wikitext"))).min() > 1e-3


def test_nothing_is_left_in_scratch(cell: Cell, tmp_path: Path) -> None:
    seen: set[int] = set()

    def watch(done: int, total: int) -> None:
        seen.add(len(list((tmp_path / "scratch").rglob("*.bin"))))

    cell("cola", progress=watch)
    assert max(seen) == 2
    assert not list((tmp_path / "scratch").iterdir())

    def fail(done: int, total: int) -> None:
        if done > total / 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cell("cola", progress=fail)
    assert not list((tmp_path / "scratch").iterdir())


def test_a_full_disk_is_said_before_anything_runs(
    cell: Cell, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage("/")._replace(free=10**6)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with (
        counted_passes(encoder) as passes,
        pytest.raises(DiskSpaceError, match=r"execution\.features_budget_gb"),
    ):
        cell("cola")
    assert not passes
    assert len(cell("cola", budget=STREAMED)) == 2


@pytest.mark.parametrize(
    ("budget", "dropout"), [(STORED, False), (STREAMED, False), (STORED, True)]
)
def test_a_cell_sees_the_replacement_around_it(
    budget: float, dropout: bool, cell: Cell, encoder: Encoder
) -> None:
    options: dict[str, Any] = {
        "seeds": (0,),
        "budget": budget,
        "probe": {"encoder_dropout": dropout},
    }
    before = scores(cell("wikitext", **options))
    some = [(layer, head) for layer in range(encoder.layers) for head in range(0, encoder.heads, 2)]
    with replaced(encoder, control("identity", encoder.layers, encoder.heads, 32), some):
        inside = scores(cell("wikitext", **options))
    assert np.abs(inside - before).min() > 1e-3
    np.testing.assert_allclose(scores(cell("wikitext", **options)), before, atol=1e-6)
