"""Averages over little text, in the report."""

from __future__ import annotations

from pathlib import Path

import pandas

from papa.reporting.amounts import amounts
from papa.reporting.report import Extras, write_report
from papa.reporting.summary import summarise
from papa.spec import ConstantsSpec, StudySpec
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
