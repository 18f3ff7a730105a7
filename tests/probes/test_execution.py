"""No execution setting changes results: every one is changed by itself, or named with what tests it
instead; and the same study twice gives the same bits, on one machine with one number of threads.

All other fields of a specification are in keys: tests/study/test_keys.py.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

from papa.spec import ExecutionSpec, TaskSpec
from tests.finished import described, score_study
from tests.probes.conftest import with_probe

pytestmark = pytest.mark.unchecked

CHANGED: dict[str, Any] = {"batch_tokens": 64, "shard_rows": 5, "features_budget_gb": 0.0}
ELSEWHERE = {
    "workers": "the same bits for any number: test_average.py and test_rank.py in tests/study",
    "device": "docs/limits.md says what depends on it",
}
Study = Callable[..., pandas.DataFrame]


def test_every_execution_setting_is_named() -> None:
    assert CHANGED.keys() | ELSEWHERE.keys() == ExecutionSpec.model_fields.keys()


@pytest.fixture
def study(
    shallow: str, tasks: dict[str, TaskSpec], tmp_path_factory: pytest.TempPathFactory
) -> Study:
    """Its rows. Negative log-perplexity is a mean of logarithms, which shows what a count of right
    answers would round away.
    """

    def scored(
        dropout: bool = False, seed: int = 0, constants: str = "average", **execution: Any
    ) -> pandas.DataFrame:
        task = with_probe(tasks["wikitext"], encoder_dropout=dropout)
        parts = {"constants": [constants], "fractions": [1, 0.5], "seeds": [seed]}
        parts["ranking"] = {"epochs": 1, "learning_rate": 0.1, "seeds": [seed]}
        entry = task.model_dump(mode="json", exclude_none=True)
        document = described(shallow, entry, orders=["lambda"], execution=execution, **parts)
        table = score_study(document, Path(), tmp_path_factory.mktemp("study") / "store").table
        return table[["score", "unseen_share"]]

    return scored


@pytest.mark.parametrize(("dropout", "constants"), [(False, "trained"), (True, "average")])
def test_results_stay_what_they_are(study: Study, dropout: bool, constants: str) -> None:
    """To the rounding of sums in float32, which another seed exceeds; and to the bit the second
    time.
    """
    as_ever = study(dropout, constants=constants)
    pandas.testing.assert_frame_equal(
        study(dropout, constants=constants), as_ever, check_exact=True
    )
    for name, value in CHANGED.items():
        found = study(dropout, constants=constants, **{name: value})
        np.testing.assert_allclose(found, as_ever, atol=1e-3, err_msg=name)
    assert np.abs(study(dropout, seed=1, constants=constants) - as_ever)["score"].min() > 0.002
