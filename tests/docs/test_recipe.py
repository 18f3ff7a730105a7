"""docs/recipe.py finds a study's own numbers, to the bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from docs.recipe import scores_by_fraction
from papa.spec.file import resolve_study
from tests.finished import score_study

pytestmark = pytest.mark.unchecked


def test_the_recipe_finds_what_a_study_finds(shallow: str, tmp_path: Path) -> None:
    task = {
        "name": "words",
        "kind": "mlm",
        "source": {"kind": "embedded"},
        "columns": {"text": "text"},
        "metric": "negative_log_perplexity",
        "slots": 16,
        "train_rows": 32,
        "validation_rows": 24,
        "probe": {"learning_rate": 1e-3, "batch_size": 8, "epochs": 1},
    }
    document: dict[str, Any] = {
        "name": "recipe",
        "encoders": [shallow],
        "tasks": [task],
        "fractions": [1, 0.5, 0],
        "seeds": [0, 1],
        "ranking": {"epochs": 1, "rows": 8, "learning_rate": 0.1, "seeds": [0, 1]},
    }
    rows = score_study(document, tmp_path, tmp_path / "store").table
    expected = rows.groupby("fraction")["score"].agg(list).to_dict()
    study = resolve_study(document, folder=tmp_path, origin="test")
    found = scores_by_fraction(study, tmp_path / "recipe")
    assert found == expected
    assert len({score for scores in found.values() for score in scores}) == 6, "all differ"
