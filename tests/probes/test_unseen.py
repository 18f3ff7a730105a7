"""The unseen share of a cell, against a count of every pair of slots by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from papa.attention.average import average_split
from papa.corpora import TokenisedCorpus
from papa.corpora.split import TokenisedSplit
from papa.encoders.encoder import Encoder
from papa.probes.evaluate import score_cell
from papa.spec import Columns, EmbeddedSource, ExecutionSpec, FeaturesSpec, TaskSpec
from tests.probes.conftest import with_probe


def pairs(split: TokenisedSplit) -> list[tuple[int, int]]:
    """Every pair of slots that an input of the split has tokens at, input by input."""
    slots = [split.tokens([row]).slot_ids.tolist() for row in split.rows.tolist()]
    return [(one, other) for row in slots for one in row for other in row]


def counted(averaged: TokenisedCorpus, scored: TokenisedCorpus) -> float:
    seen, read = set(pairs(averaged.split("train"))), pairs(scored.split("validation"))
    return sum(pair not in seen for pair in read) / len(read)


@pytest.fixture(scope="module")
def reviews(corpus_of: Callable[..., TokenisedCorpus]) -> TokenisedCorpus:
    """One training text, shorter than some of CoLA."""
    columns = Columns(text="text", label="label")
    return corpus_of(
        "cola",
        source=EmbeddedSource(kind="embedded"),
        columns=columns,
        metric="accuracy",
        train_rows=1,
    )


@pytest.mark.parametrize("averaged", ["own", "other"])
@pytest.mark.parametrize("dropout", [False, True])
def test_the_unseen_share_is_of_validation_rows_each_once(
    averaged: str,
    dropout: bool,
    encoder: Encoder,
    corpus_of: Callable[..., TokenisedCorpus],
    reviews: TokenisedCorpus,
    tasks: dict[str, TaskSpec],
    tmp_path: Path,
) -> None:
    cola = corpus_of("cola", train_rows=6)
    over = cola if averaged == "own" else reviews
    constants = average_split(encoder, over.split("train"), slots=64, batch_tokens=512).average()
    task = with_probe(tasks["cola"], epochs=1, encoder_dropout=dropout)

    def share(seen: torch.Tensor, **execution: float) -> float | None:
        _, found = score_cell(
            encoder,
            replace(constants, seen=seen),
            [(0, 3), (1, 5)],
            cola,
            task,
            (0,),
            trained=False,
            features=FeaturesSpec(),
            execution=ExecutionSpec(**execution),
            scratch=tmp_path / "scratch",
        )
        return found

    expected = counted(over, cola)
    assert 0.001 < expected < 0.999
    assert share(constants.seen) == expected
    assert share(constants.seen, features_budget_gb=0, batch_tokens=64) == expected
    assert share(torch.ones_like(constants.seen)) == 0
