"""Studies of orders that heads' worth gives, on an encoder in which one head carries the label."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.finished import described, score_study
from tests.ranking.planted import planted_encoder, planted_task, with_classifier

pytestmark = pytest.mark.unchecked
HEAD = (1, 1)
VALUED = ["shapley", "greedy", "effect"]
TRAINED = ["gradient", "gates", "lambda"]
LABEL_FREE = ["self_lambda", "distance", "output_distance"]
ASKED: dict[str, tuple[dict[str, str], list[str]]] = {
    "probe": ({"head": "probe"}, [*VALUED, *TRAINED, *LABEL_FREE]),
    "own head": ({"head": "own"}, [*VALUED, "gradient"]),
    "itself": ({"head": "own", "metric": "agreement"}, VALUED),
}


def planted_study(folder: Path, changes: dict[str, str], orders: list[str]) -> dict[str, Any]:
    """A study of an encoder with the planted head, both of which it writes."""
    planted_encoder(folder / "encoder", HEAD)
    task = planted_task(folder)
    if changes["head"] == "own":
        with_classifier(folder / "encoder", task)
    ranking = {"epochs": 6, "learning_rate": 0.05, "evaluations": 40, "rows": 64, "seeds": [0]}
    entry, parts = {**task.model_dump(mode="json"), **changes}, {"ranking": ranking}
    return described(folder / "encoder", entry, orders=orders, fractions=[1, 0.5], **parts)


@pytest.mark.parametrize("name", ASKED)
def test_the_head_that_carries_the_label_becomes_constant_last(name: str, tmp_path: Path) -> None:
    """With half of the heads constant nothing is lost; from the order's other end, all is."""
    changes, orders = ASKED[name]
    both = [*orders, *(f"reversed:{order}" for order in orders)]
    document = planted_study(tmp_path, changes, both)
    steps, _, table, found = score_study(document, tmp_path, tmp_path / "store")
    for cell, (probe,) in steps.cells.items():
        if cell.fraction < 1:
            ranked = probe["heads"].ranked(found)
            assert ranked[0 if "reversed" in cell.order else -1] == HEAD, cell.order
    half = table[table["fraction"] == 0.5].set_index("order")["score"]
    half = half.rename({"lambda_reversed": "reversed:lambda"})
    whole = table[table["fraction"] == 1]["score"].max()
    assert whole > 0.95
    for order in orders:
        assert half[order] > whole - 0.05, order
        assert half[f"reversed:{order}"] < 0.75, order
