"""A file of scores as the order of heads of a study."""

from pathlib import Path

import numpy as np
import pytest
import yaml

from papa.errors import CheckError
from papa.ranking.orders import head_order
from papa.reporting.wording import order_label
from papa.spec import StudySpec
from papa.spec.file import load_study, resolve_study
from papa.tasks.inputs import resolve_inputs
from papa.tasks.manifest import specification
from papa.tasks.pipeline import build_pipeline
from papa.tasks.step import Step
from tests.finished import cells_of
from tests.flows.conftest import SMALL

SCORES = np.random.default_rng(0).random((6, 12))
ASCENDING = [divmod(int(index), 12) for index in SCORES.ravel().argsort()]
OF_HALF: dict[str, object] = {**SMALL, "keep": [1, 0.5]}


def written(folder: Path, orders: list[str], scores: np.ndarray = SCORES) -> StudySpec:
    folder.mkdir(exist_ok=True)
    np.savetxt(folder / "heads.tsv", scores, fmt="%.17g", delimiter="\t")
    (folder / "study.yaml").write_text(yaml.safe_dump({**OF_HALF, "orders": orders}))
    return load_study(folder / "study.yaml")


def probes(study: StudySpec) -> list[Step]:
    steps = build_pipeline(resolve_inputs(study).inputs())
    assert "train_lambda" not in {step.stage.name for step in steps.steps}, "it needs no λ"
    by_cell = cells_of(steps).items()
    return [step for cell, group in by_cell if cell.fraction == 0.5 for step in group]


def test_a_file_of_scores_is_a_head_order(tmp_path: Path) -> None:
    orders = ["scores:heads.tsv", "reversed:scores:heads.tsv", "reversed:last_to_first"]
    chosen_heads = [step["heads"].select({}) for step in probes(written(tmp_path, orders))[::2]]
    expected_heads = ASCENDING[:36], ASCENDING[36:], head_order("last_to_first", None, 6, 12)[36:]
    assert chosen_heads == [tuple(sorted(heads)) for heads in expected_heads]
    assert order_label(orders[1]) == "scores of heads.tsv, reversed"


def test_what_a_file_said_is_in_the_stored_study(tmp_path: Path) -> None:
    scores = [{"name": "mine", "values": SCORES.tolist()}]
    document = {**OF_HALF, "orders": ["scores:mine"], "scores": scores}
    study = written(tmp_path / "one", ["scores:heads.tsv"])
    negated = written(tmp_path / "two", ["scores:heads.tsv"], -SCORES)
    renamed = resolve_study(document, folder=tmp_path, origin="test")
    keys, same, other_keys = (
        {step.key for step in probes(one_study)} for one_study in (study, renamed, negated)
    )
    assert keys == same != other_keys
    (tmp_path / "one" / "heads.tsv").unlink()
    stored = resolve_study(yaml.safe_load(specification(study)), folder=tmp_path, origin="stored")
    assert stored == study, "a stored study needs no file"


def test_scores_that_do_not_fit_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(CheckError, match=r"6 .*8 .*6 .*12"):
        resolve_inputs(written(tmp_path, ["scores:heads.tsv"], SCORES[:, :8])).inputs()
    with pytest.raises(CheckError, match=r"nowhere\.tsv"):
        written(tmp_path, ["scores:nowhere.tsv"])
