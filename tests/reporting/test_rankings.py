"""What a report says of λ's training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from papa.ranking.seeds import TrainedLambda
from papa.reporting.report import Extras, write_report
from papa.reporting.summary import summarise
from papa.spec import RankingSpec
from tests.reporting.studies import results, study

NUMBERS = np.random.default_rng(0)
FOUND = {
    ("all-MiniLM-L6-v2", "reviews"): TrainedLambda(
        {seed: NUMBERS.random((4, 6, 12)) for seed in (0, 1)}
    ),
    ("all-MiniLM-L6-v2", "cola"): TrainedLambda({0: NUMBERS.random((1, 6, 12))}),
}


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
    assert (
        "all-MiniLM-L6-v2 on cola: λ is from one seed: nothing is known of its certainty." in text
    )
    assert (
        "all-MiniLM-L6-v2 on reviews: Over 2 seeds the head order by λ cannot be told from chance"
        in text
    )
    rows = {
        tuple(cell.strip() for cell in row.split("|")[1:-1])
        for row in text.splitlines()
        if "|" in row
    }
    assert ("all-MiniLM-L6-v2", "cola", "1", *["–"] * 4) in {row[:7] for row in rows}
    assert ("all-MiniLM-L6-v2", "cola", "0", "1", *["–"] * 3) in {row[:7] for row in rows}
    assert "## Head order by λ, between the last two epochs" in text
