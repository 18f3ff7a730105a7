"""The references are made from what they are about, and refuse to leave something out."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import get_args

import pytest
import yaml

from papa.scores.orders import compare_orders
from papa.scores.summary import summarise
from papa.spec import Frozen, NamedMetric, StudySpec
from papa.spec.file import resolve_study
from tests.reporting.studies import results

GENERATORS = Path(__file__).parents[2] / "docs" / "generators"


@pytest.fixture
def study_file(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    pytest.importorskip("mkdocs", reason="mkdocs is not installed: run 'make setup'")
    monkeypatch.syspath_prepend(str(GENERATORS))
    import study_file

    monkeypatch.delitem(sys.modules, "study_file")
    return study_file


def test_every_key_has_a_description_and_an_example(study_file: ModuleType) -> None:
    page = study_file.study_page()
    for title, model in study_file.SECTIONS.items():
        section = page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
        rows = [line.split(" | ") for line in section.splitlines() if line.startswith("| `")]
        keys = [row[0].strip("| `") for row in rows]
        assert [key for key in keys if key != "as_the_authors_ran"] == list(model.model_fields)
        assert all(len(row) == 5 and all(cell.strip(" |`") for cell in row) for row in rows), title


def test_a_key_without_a_description_or_an_example_is_refused(
    study_file: ModuleType, tmp_path: Path
) -> None:
    class Silent(Frozen):
        said: int = 0
        """What it is."""
        unsaid: int = 0

    assert study_file.description(Silent, "said") == "What it is."
    with pytest.raises(LookupError, match=r"Silent.unsaid has no description: write a string bel"):
        study_file.description(Silent, "unsaid")
    (tmp_path / "paper.csv").write_text("")
    document = yaml.safe_load(study_file.EXAMPLES.read_text())
    study = resolve_study(document, folder=tmp_path, origin="every_key.yaml")
    assert study.constants[2].start == "average", "the examples are a study"
    del document["execution"]["shard_rows"]
    with pytest.raises(LookupError, match=r"ExecutionSpec.shard_rows has no example"):
        study_file.examples(StudySpec, document)


def test_columns_and_metrics_are_those_there_are(study_file: ModuleType) -> None:
    meanings = {title: list(names) for title, names in study_file.MEANINGS.items()}
    rows = results(orders=("lambda", "random"))
    compared = compare_orders(rows, {})
    assert compared is not None
    assert set(rows.columns) <= set(meanings["results.parquet"])
    assert list(summarise(rows)) == meanings["summary.csv"]
    assert list(compared[0]) == meanings["orders.csv"]
    assert list(compared[1]) == meanings["order_scores.csv"]
    assert set(meanings["metrics"]) == set(get_args(NamedMetric))
    page = study_file.columns_page()
    assert all(f"| `{name}` | " in page for names in meanings.values() for name in names)
