"""Constant outputs in a study: their steps, their scores, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from flows.cli.export import export_cell
from papa.errors import SpecError
from papa.scores.metrics import influence
from papa.study.stages.probe import read_examples, read_scores
from tests.finished import described, opened, score_study
from tests.flows.conftest import SMALL

pytestmark = pytest.mark.unchecked

KINDS = ["mean_output", "mean_output_by_slot", "resampled_output", "optimal_output"]
PROBED = {**SMALL["tasks"][0], "metric": "accuracy", "source": {"kind": "embedded"}}
PROBED |= {"train_rows": 16, "validation_rows": 16}
OWN = {**PROBED, "head": "own", "metric": "cosine", "base": "reviews", "train_rows": 32}


@pytest.mark.server
@pytest.mark.parametrize(("task", "kinds"), [(PROBED, KINDS), (OWN, [*KINDS[:3], "reused"])])
def test_every_output_scores_and_only_what_is_drawn_has_a_step_a_seed(
    task: dict[str, Any], kinds: list[str], shallow: str, tmp_path: Path
) -> None:
    study = described(shallow, task, constants=kinds, fractions=[1, 0.5], seeds=[0, 1])
    steps, _, table, found = scored = score_study(study, Path(), tmp_path / "store")
    outputs = [step for step in steps.steps if step.stage == "outputs"]
    alone = [(kind, None) for kind in KINDS[:2]]
    drawn = [("resampled_output", seed) for seed in (0, 1)]
    assert len(outputs) == 4
    assert {(step["kind"], step["seed"]) for step in outputs} == {*alone, *drawn}
    for cell, probes in steps.cells.items():
        by_seed = cell.constants == "resampled_output" and cell.fraction < 1
        assert [one["seeds"] for one in probes] == ([(0,), (1,)] if by_seed else [(0, 1)])
        at = (table["constants"] == cell.constants) & (table["fraction"] == cell.fraction)
        rows = table[at].set_index("seed")
        for one in probes:
            made = read_scores(found[one]).scores, read_examples(found[one])
            for scored_seed, examples in zip(*made, strict=True):
                row = rows.loc[scored_seed.seed]
                assert row["score"] == scored_seed.score
                own = influence(task["metric"], examples)
                np.testing.assert_allclose(row["influence"], own, atol=1e-6)
    assert not list(scored.store.scratch.iterdir()), "features are removed"
    half = table[table["fraction"] == 0.5]
    assert half["score"].notna().all()
    assert half["constant_heads"].unique().tolist() == [12]
    assert half["unseen_share"].isna().all()
    if task is OWN:
        scores = {kind: set(own["score"]) for kind, own in half.groupby("constants")}
        assert len(scores["resampled_output"]) == 2, "a draw for each seed"
        assert len(scores["mean_output"] | scores["mean_output_by_slot"]) == 2
    finished = opened(scored)
    constant = {entry.constant_heads for entry in finished.manifest.cells if entry.fraction < 1}
    assert constant == {tuple((0, head) for head in range(12))}
    asked = {"order": "first_to_last", "constants": kinds[-1]}
    with pytest.raises(SpecError, match="are not constant matrices that all seeds share"):
        export_cell(finished, asked, tmp_path / "export", Console(), fraction=0.5)
