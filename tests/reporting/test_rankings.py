"""What a report says of λ's training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from papa.ranking.stability import Stability
from papa.reporting.report import Extras, write_report
from papa.reporting.summary import summarise
from papa.spec import RankingSpec
from tests.reporting.studies import results, study

FOUND = {
    ("all-MiniLM-L6-v2", "reviews"): Stability(4, 0.984, {0.5: 0.972, 0.125: 1.0}),
    ("all-MiniLM-L6-v2", "cola"): Stability(1, None, {}),
}


@pytest.mark.parametrize(
    ("ranking", "sentence"),
    [
        ({}, "trained together with a probe for each task's own number of epochs."),
        ({"epochs": 2, "rows": 600}, "trained together with a probe for 2 epochs on 600 rows."),
        (
            {"until_stable": True},
            "number of epochs at most, until an epoch left the sets of constant heads as they were",
        ),
    ],
)
def test_how_long_lambda_was_trained_and_what_its_last_epoch_changed(
    tmp_path: Path, ranking: dict[str, Any], sentence: str
) -> None:
    frame = results()
    spec = study(frame).model_copy(update={"ranking": RankingSpec(**ranking)})
    write_report(tmp_path, spec, frame, summarise(frame), extras=Extras(rankings=FOUND))
    text = (tmp_path / "report.md").read_text()
    assert sentence in text
    rows = {
        row.split("|")[2].strip(): [cell.strip() for cell in row.split("|")]
        for row in text.splitlines()
        if "all-MiniLM-L6-v2 |" in row and len(row.split("|")) == 8
    }
    assert rows["reviews"][3:7] == ["4", "0.98", "97 %", "100 %"]
    assert rows["cola"][3:7] == ["1", "–", "–", "–"]
