"""The model card shows names as they are, whatever they hold."""

from __future__ import annotations

import pytest
import yaml

from papa.exporting.card import model_card
from papa.exporting.gains import study_score
from papa.scores.summary import summarise
from tests.exporting.conftest import document_with
from tests.reporting.studies import results


@pytest.mark.parametrize("own_head", [True, False])
def test_a_score_of_more_than_the_folder_holds_says_so(own_head: bool) -> None:
    summary = summarise(results(fractions=(1, 0.5)))
    score = study_score(
        summary, precision="float32", unseen_share=0.0, rows=20, cut=0, own_head=own_head
    )
    said = any("this folder holds its encoder alone" in note for note in score["written"]["notes"])
    assert said == own_head


NAME = "a\n---\nlicence: mine\n# <script>|[c](http://d)"


def test_a_hostile_name_is_text() -> None:
    card = model_card(
        document_with(
            encoder={"name": NAME, "revision": "<b>", "layers": 2, "heads": 2},
            study={
                "name": "small",
                "encoder": "x|<i>",
                "task": "t",
                "constants": "average",
                "order": "lambda",
                "fraction": 0.5,
            },
        )
    )
    _, front, rest = card.split("---\n", maxsplit=2)
    assert yaml.safe_load(front) == {"library_name": "papa-attention", "base_model": NAME}
    for hostile in ("<script>", "<b>", "<i>", "[c]", "x|", "\nlicence", "http://d"):
        assert hostile not in rest, hostile
