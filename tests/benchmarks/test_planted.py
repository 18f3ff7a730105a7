"""Tables of planted models are those of the measured file."""

import numpy as np
import pandas
import pytest
import torch

from benchmarks.planted.kinds import kinds
from benchmarks.planted.scores import area_under_curve, captum_scores
from benchmarks.planted.tables import (
    ALL_TABLES,
    MARKER,
    PAGE,
    RESULTS,
    all_tables,
    page_table,
)
from benchmarks.planted.training import (
    HEADS,
    PlantedModel,
    entries_of_head,
    output_maps,
    untrained_model,
)


def test_the_page_has_the_table_of_the_measured_file() -> None:
    _, table, _ = PAGE.read_text().split(MARKER)
    assert table.strip() == page_table(pandas.read_csv(RESULTS))


def test_all_tables_are_those_of_the_measured_file() -> None:
    assert ALL_TABLES.read_text() == all_tables(pandas.read_csv(RESULTS))


@pytest.mark.parametrize(
    ("scores", "area"),
    [
        ([1.0, 0.2, 0.3], 1.0),
        ([0.1, 0.2, 0.3], 0.0),
        ([0.2, 0.2, 0.2], 0.5),
        ([0.2, 0.1, 0.3], 0.5),
    ],
    ids=["right", "reversed", "ties", "half"],
)
def test_area_under_curve_counts_pairs_in_order(scores: list[float], area: float) -> None:
    needed = np.array([True, False, False])
    assert area_under_curve(np.array(scores), needed) == pytest.approx(area)


def test_captum_gives_nothing_to_a_head_that_writes_nothing() -> None:
    torch.manual_seed(0)
    kind = kinds(2)[0]
    model = untrained_model(kind, 2).eval()
    silent_layer = 1
    silent_head = 2
    output = output_maps(model)[silent_layer].get_parameter("weight")
    output.data[:, entries_of_head(silent_head)] = 0
    ids, _ = kind.draw(8, torch.Generator().manual_seed(1))
    planted = PlantedModel(kind, 0, model, readout=None, loss=0.0)
    scores = captum_scores(planted, ids, ids.roll(1, 0))
    assert scores[silent_layer, silent_head] == pytest.approx(0, abs=1e-9)
    others = scores.flatten()[torch.arange(2 * HEADS) != silent_layer * HEADS + silent_head]
    assert (others > 1e-6).all(), "negative control"
