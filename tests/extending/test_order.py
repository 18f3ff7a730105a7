"""A head order is one entry of papa/ranking/orders.py; one of one's own is a file of scores that a
study names.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from papa.errors import CheckError, DataError, SpecError
from papa.ranking.orders import HEAD_ORDERS, HeadOrder, head_order
from papa.reporting.wording import order_label
from papa.spec import StudySpec
from papa.spec.file import load_study, resolve_study
from papa.study.inputs import resolve_inputs
from papa.study.manifest import specification
from papa.study.steps import study_steps
from tests.finished import cells_of
from tests.flows.conftest import SMALL
from tests.study.test_steps import steps_of


def test_an_entry_of_the_orders_is_a_head_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every second head first."""
    with pytest.raises(SpecError, match=r"no order 'every_second': give one of lambda, .*effect"):
        steps_of(orders=["every_second"])

    arranged = HeadOrder("every second head first", lambda heads, *_: heads[::2] + heads[1::2])
    monkeypatch.setitem(HEAD_ORDERS, "every_second", arranged)
    steps = steps_of(orders=["every_second", "first_to_last"], fractions=[0.5])
    heads = {cell.order: step["heads"].chosen({}) for cell, (step,) in cells_of(steps).items()}
    assert heads["every_second"] == tuple(np.ndindex(6, 12))[::2]
    assert "rank" not in {step.stage for step in steps.steps}, "it needs no λ"
    assert order_label("every_second") == "every second head first"


SCORES = np.random.default_rng(0).random((6, 12))
ASCENDING = [divmod(int(place), 12) for place in SCORES.ravel().argsort()]
HALF: dict[str, Any] = {**SMALL, "fractions": [1, 0.5]}


def written(folder: Path, orders: list[str], scores: Any = SCORES) -> StudySpec:
    """A study beside its file of scores."""
    folder.mkdir(exist_ok=True)
    np.savetxt(folder / "heads.tsv", scores, fmt="%.17g", delimiter="\t")
    (folder / "study.yaml").write_text(yaml.safe_dump({**HALF, "orders": orders}))
    return load_study(folder / "study.yaml")


def probes(study: StudySpec) -> list[Any]:
    """The steps at 1/2."""
    steps = study_steps(resolve_inputs(study).inputs())
    assert "rank" not in {step.stage for step in steps.steps}, "it needs no λ"
    return [step for cell, own in cells_of(steps).items() if cell.fraction == 0.5 for step in own]


def test_a_file_of_scores_is_a_head_order(tmp_path: Path) -> None:
    orders = ["scores:heads.tsv", "reversed:scores:heads.tsv", "reversed:last_to_first"]
    found = [step["heads"].chosen({}) for step in probes(written(tmp_path, orders))]
    ends = ASCENDING[:36], ASCENDING[36:], head_order("last_to_first", None, 6, 12)[36:]
    assert found == [tuple(sorted(heads)) for heads in ends]
    assert order_label(orders[1]) == "scores of heads.tsv, reversed"


def test_what_a_file_said_is_in_the_key_and_in_the_stored_study(tmp_path: Path) -> None:
    scores = [{"name": "mine", "values": SCORES.tolist()}]
    document = {**HALF, "orders": ["scores:mine"], "scores": scores}
    study, other = (
        written(tmp_path / name, ["scores:heads.tsv"], sign * SCORES)
        for name, sign in (("one", 1), ("two", -1))
    )
    renamed = resolve_study(document, folder=tmp_path, origin="test")
    own, same, others = ({step.key for step in probes(one)} for one in (study, renamed, other))
    assert own == same != others
    (tmp_path / "one" / "heads.tsv").unlink()
    stored = resolve_study(yaml.safe_load(specification(study)), folder=tmp_path, origin="stored")
    assert stored == study, "a stored study needs no file"


def test_scores_that_do_not_fit_are_one_sentence(tmp_path: Path) -> None:
    said = r"they are of 6 layers of 8 heads, and encoder .* has 6 layers of 12"
    with pytest.raises(CheckError, match=said):
        resolve_inputs(written(tmp_path, ["scores:heads.tsv"], SCORES[:, :8])).inputs()
    with pytest.raises(DataError, match="cannot be read as head scores"):
        written(tmp_path, ["scores:nowhere.tsv"])
