"""What a report says of averages over little text, of λ's training and of a decoder's cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

from papa.ranking.seeds import TrainedLambda
from papa.reporting.amounts import amounts
from papa.reporting.cache import CachedCell, cache_table
from papa.reporting.report import Extras, write_report
from papa.reporting.summary import summarise
from papa.spec import ConstantsSpec, RankingSpec, StudySpec
from papa.spec.cells import Cell
from tests.reporting.studies import results, study

FEW = [ConstantsSpec(kind="average", rows=rows) for rows in (100, 10)]
CORPORA = {"reviews": {"rows": {"train": 2000, "validation": 500}}}


def few() -> tuple[StudySpec, pandas.DataFrame]:
    """A study of averages over all, 100 and 10 rows; the fewer, the more was never seen."""
    whole = results()
    frames = [whole, *(whole.assign(constants=one.label) for one in FEW)]
    frame = pandas.concat(
        [
            one.assign(unseen_share=share, score=one["score"] - share / 10)
            for one, share in zip(frames, (0.0, 0.2, 0.5), strict=True)
        ],
        ignore_index=True,
    )
    kinds = (ConstantsSpec(kind="average"), *FEW)
    return study(whole).model_copy(update={"constants": kinds}), frame


def test_averages_stand_by_their_rows(tmp_path: Path) -> None:
    spec, frame = few()
    found = amounts(spec, frame, summarise(frame), CORPORA)
    assert found is not None
    assert found["rows"].tolist() == [10, 100, 2000]
    assert found["unseen_share"].tolist() == [0.5, 0.2, 0.0]
    assert (found["fraction"] == 0).all()
    assert found["mean"].is_monotonic_increasing
    write_report(tmp_path, spec, frame, summarise(frame), extras=Extras(corpora=CORPORA))
    text = (tmp_path / "report.md").read_text()
    rows = text.split("## Averages over little text")[1].splitlines()
    told = [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows if "|" in row][2:5]
    assert [(row[0], row[-1]) for row in told] == [
        ("10", "50.0 %"),
        ("100", "20.0 %"),
        ("2,000", "0.0 %"),
    ]
    frame = results()
    assert amounts(study(frame), frame, summarise(frame), CORPORA) is None, "of all text"
    assert 'data-chart="rows-reviews"' in (tmp_path / "report.html").read_text()


NUMBERS = np.random.default_rng(0)
OF_TWO = TrainedLambda({seed: NUMBERS.random((4, 6, 12)) for seed in (0, 1)})
OF_ONE = TrainedLambda({0: NUMBERS.random((1, 6, 12))})
FOUND = {("all-MiniLM-L6-v2", "reviews"): OF_TWO, ("all-MiniLM-L6-v2", "cola"): OF_ONE}


@pytest.mark.parametrize(
    ("ranking", "sentence"),
    [
        (
            {},
            "trained together with a probe for each task's own number of epochs, and averaged "
            "over 3 seeds.",
        ),
        (
            {"epochs": 2, "rows": 600, "seeds": (4,)},
            "trained together with a probe for 2 epochs on 600 rows, with one seed.",
        ),
        (
            {"until_stable": True},
            "epochs at most, until λ had moved from .5 and an epoch left the sets of constant "
            "heads as they were",
        ),
    ],
)
def test_how_long_lambda_was_trained_and_what_its_last_epoch_changed(
    tmp_path: Path, ranking: dict[str, Any], sentence: str
) -> None:
    frame = results()
    spec = study(frame).model_copy(update={"ranking": RankingSpec(**ranking)})
    write_report(tmp_path, spec, frame, summarise(frame), extras=Extras(lambdas=FOUND))
    text = (tmp_path / "report.md").read_text()
    assert sentence in text
    for told in (
        "on cola: λ is from one seed: nothing is known of its certainty.",
        "on reviews: Over 2 seeds the head order by λ cannot be told from chance",
    ):
        assert f"all-MiniLM-L6-v2 {told}" in text
    rows = {
        tuple(cell.strip() for cell in row.split("|")[1:-1])
        for row in text.splitlines()
        if "|" in row
    }
    assert ("all-MiniLM-L6-v2", "cola", "1", *["–"] * 4) in {row[:7] for row in rows}
    assert ("all-MiniLM-L6-v2", "cola", "0", "1", *["–"] * 3) in {row[:7] for row in rows}
    assert "## Head order by λ, between the last two epochs" in text


LAYERS, HEADS, SHARING, TOKENS = 2, 4, 2, 100


def row(kind: dict[str, object], *heads: list[tuple[int, int]]) -> list[str]:
    constants = ConstantsSpec.model_validate(kind)
    cell = Cell("model", "task", constants.label, "random", 0.5)
    groups = LAYERS * HEADS // SHARING
    (found,) = cache_table([CachedCell(cell, constants, heads, SHARING, groups, TOKENS)]).rows
    return found[-3:]


@pytest.mark.parametrize(
    ("kind", "keys", "values"),
    [
        ({"kind": "average"}, "50.0 %", "0.0 %"),
        ({"kind": "zeros"}, "50.0 %", "50.0 %"),
        ({"kind": "local", "window": 9}, "50.0 %", "45.0 %"),
        ({"kind": "local", "window": 200}, "50.0 %", "0.0 %"),
        ({"kind": "streaming", "sinks": 4, "recent": 16}, "40.0 %", "40.0 %"),
    ],
)
def test_values_are_needed_as_far_as_constants_reach(
    kind: dict[str, object], keys: str, values: str
) -> None:
    whole = [(0, 0), (0, 1), (1, 2), (1, 3)]
    assert row(kind, whole) == ["2 of 4", keys, values]
    assert row(kind, [(0, 0), (0, 2), (1, 1), (1, 3)]) == ["0 of 4", "0.0 %", "0.0 %"]


def test_seeds_with_other_heads_give_a_span() -> None:
    whole = [(0, 0), (0, 1)], [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert row({"kind": "average"}, *whole) == ["1 to 2 of 4", "25.0 % to 50.0 %", "0.0 %"]
