"""``papa export --max-drop`` between the fractions of a study: what is tried, what is found, and
that nothing is tried where the study's answer is enough.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from flows.drops import Answer, answers
from flows.most_heads import run_and_choose, search

from flows.export import ExportRequest
from flows.interrupt import Interruption
from papa.errors import SpecError
from papa.spec import StudySpec
from papa.spec.file import load_study
from papa.study.store import Store
from papa.study.stored import StoredStudy
from tests.finished import finish_study
from tests.flows.conftest import SMALL, artifacts, write_study

pytestmark = pytest.mark.server

REQUEST = ExportRequest(None, None, "average", "first_to_last", None)
PROBE = {"learning_rate": 5e-4, "batch_size": 16, "epochs": 3}
TASK = {
    "name": "reviews",
    "slots": 32,
    "train_rows": 300,
    "validation_rows": 200,
    "probe": PROBE,
}
STUDY = SMALL | {"tasks": [TASK], "orders": ["first_to_last"], "fractions": [1, 0.833, 0.667]}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, shallow: str) -> tuple[StudySpec, Store]:
    folder = tmp_path_factory.mktemp("search")
    file = write_study(folder, STUDY | {"encoders": [shallow]})
    finish_study(file, folder / "store")
    return load_study(Path(file)), Store(folder / "store")


def answer(study: StudySpec, store: Store, share: float) -> Answer:
    (found,) = answers(StoredStudy(study, store), share)
    return found


def probes(store: Store) -> dict[str, int]:
    return artifacts(Path(store.address), "probe")


def ended(study: StudySpec, store: Store) -> Answer:
    """What the study says, which is something."""
    found = answer(study, store, 0.5)
    assert not found.reason
    return found


def test_heads_between_fractions_are_tried_until_neighbours_differ(
    finished: tuple[StudySpec, Store], capsys: pytest.CaptureFixture[str]
) -> None:
    study, store = finished
    before, ran = probes(store), {4, 8}
    few, more = (count.drop.high for count in ended(study, store).counts)
    share = (few + more) / 2 if few < more else few - 1e-6
    part, found = search(study, store, share, answer(study, store, share))
    low = found.most.constant_heads if found.most else 0
    assert low >= (4 if few < more else 0)
    verdicts = {count.constant_heads: count.verdict for count in found.counts}
    assert verdicts[low + 1] != "within", "one head more was tried"
    told = capsys.readouterr().err
    assert f"between {4 if few < more else 0} and {8 if few < more else 4} of 24:" in told
    for number in verdicts.keys() - ran:
        assert f"{number} of 24: {verdicts[number]}: drop" in told
    assert f"{len(verdicts) - len(ran)} tried: each may be within by luck" in told
    # All are cells of a study, under the keys of this one; a second search computes nothing.
    after = probes(store)
    assert after.items() > before.items()
    assert len(after) == len(before) + len(verdicts) - len(ran) <= len(before) + 2
    assert search(study, store, share, answer(study, store, share)) == (part, found)
    assert probes(store) == after


def test_nothing_is_tried_where_the_answer_is_enough(finished: tuple[StudySpec, Store]) -> None:
    study, store = finished
    before = probes(store)
    every = max(count.drop.high for count in ended(study, store).counts)
    part, request = run_and_choose(
        study, store, REQUEST, every + 1e-6, Interruption(), verbose=False
    )
    assert (part, request.fraction) == (study, 0.667)
    assert probes(store) == before


def test_a_drop_that_no_number_of_heads_stays_within_is_refused(
    finished: tuple[StudySpec, Store],
) -> None:
    with pytest.raises(SpecError, match="no number of heads is known to stay within a drop of -99"):
        run_and_choose(*finished, REQUEST, -0.99, Interruption(), verbose=False)


def test_what_cannot_be_exported_is_refused_before_anything_runs(
    finished: tuple[StudySpec, Store],
) -> None:
    study, store = finished
    before = artifacts(Path(store.address), "probe", "average", "outputs")
    for constants, order, sentence in (
        ("reused", "first_to_last", "attention of the layer before, which is no constant"),
        ("average", "random", "makes other heads constant for each"),
    ):
        request = replace(REQUEST, constants=constants, order=order)
        with pytest.raises(SpecError, match=sentence):
            run_and_choose(study, store, request, 0.01, Interruption(), verbose=False)
    assert artifacts(Path(store.address), "probe", "average", "outputs") == before
