"""The model card shows names as they are, whatever they hold."""

from __future__ import annotations

import yaml

from papa.exporting.card import model_card
from papa.exporting.document import ExportDocument

NAME = "a\n---\nlicence: mine\n# <script>|[c](http://d)"


def test_a_hostile_name_is_text() -> None:
    card = model_card(
        ExportDocument(
            encoder={"name": NAME, "revision": "<b>", "layers": 2, "heads": 2},
            layout={"texts": 1, "longest": [6], "slots": 8},
            heads=((0, 0),),
            constants="average",
            study={
                "name": "small",
                "encoder": "x|<i>",
                "task": "t",
                "constants": "average",
                "order": "lambda",
                "fraction": 0.5,
            },
            score=None,
            speed=None,
            fidelity=None,
            size={"weights": 1, "original_weights": 2, "constants": 1},
        )
    )
    _, front, rest = card.split("---\n", maxsplit=2)
    assert yaml.safe_load(front) == {"library_name": "papa-attention", "base_model": NAME}
    for hostile in ("<script>", "<b>", "<i>", "[c]", "x|", "\nlicence", "http://d"):
        assert hostile not in rest, hostile
