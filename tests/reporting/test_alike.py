"""The map of alike heads: what the picture says is what the frame says, clusters side by side."""

from __future__ import annotations

import base64
import io

import numpy as np
import pandas
import pytest
from PIL import Image
from scipy.spatial.distance import squareform

from papa.descriptions.seen import ATTENTIONS
from papa.descriptions.similarity import clusters
from papa.descriptions.told import told
from papa.reporting.figures.alike import alike_charts
from papa.reporting.figures.heatmaps import TOP

APART = 0.5
"""Of heads of different clusters."""
MEMBERS = [[0, 2, 5], [1, 4], [3]]


def divergence() -> np.ndarray:
    matrix = np.full((6, 6), APART)
    for members in MEMBERS:
        matrix[np.ix_(members, members)] = 0.05
    np.fill_diagonal(matrix, 0)
    matrix[0, 2] = matrix[2, 0] = 0.01
    return matrix


def frame() -> pandas.DataFrame:
    """Two layers of three heads, with a cosine of twice the divergence."""
    first, second = np.triu_indices(6, 1)
    named, apart = clusters(divergence()), squareform(divergence())
    pairs = pandas.DataFrame(
        {
            "layer": first // 3,
            "head": first % 3,
            "other_layer": second // 3,
            "other_head": second % 3,
            "divergence": apart,
            "cosine": 2 * apart,
            "cluster": named[first],
            "other_cluster": named[second],
        }
    )
    return pandas.concat([pairs.assign(attention=of) for of in ATTENTIONS], ignore_index=True)


def test_the_map_is_the_matrix_with_clusters_side_by_side() -> None:
    charts = alike_charts(frame())
    assert [chart.title for chart in charts] == ["input-dependent", "constant"]
    picture, _, boxes = charts[0].specification["layer"]
    image = picture["data"]["values"][0]["image"].partition(",")[2]
    levels = np.array(Image.open(io.BytesIO(base64.b64decode(image))))
    names = charts[0].data["name"].tolist()
    order = [3 * int(name[0]) + int(name[2]) for name in names]
    sought = divergence()[np.ix_(order, order)]
    np.testing.assert_allclose(APART * (1 - levels / TOP), sought, atol=APART / TOP)
    assert not np.allclose(sought, divergence()), "negative control: another order"
    found = [sorted(order[box["start"] : box["end"]]) for box in boxes["data"]["values"]]
    assert sorted(found) == MEMBERS[:2], "a head alone has no box"
    assert charts[0].data.set_index("name").loc["0.2", "nearest"] == "0.0"
    assert "<image" in charts[0].svg()


def test_tables_name_the_most_alike_heads_and_the_clusters() -> None:
    _, pairs, groups = told({"similarity": frame()})
    assert pairs.rows[0] == ["0.0 · 0.2", *["0.010 · 0.02"] * 3]
    assert len(pairs.rows) == 10
    assert [row[2:] for row in groups.rows if row[0] == "input-dependent"] == [
        ["3", "0.037", "0.0 0.2 1.2"],
        ["2", "0.050", "0.1 1.1"],
    ]


def test_one_strange_head_does_not_join_all_others() -> None:
    apart = np.pad(0.6 * divergence(), (0, 1), constant_values=np.log(2))
    apart[-1, -1] = 0
    assert len(set(clusters(apart)[:-1])) == len(MEMBERS)


def test_one_head_has_no_map() -> None:
    none = frame()[:0]
    assert alike_charts(none) == ()
    with pytest.raises(StopIteration):
        next(one for one in told({"similarity": none}) if "alike" in one.heading)
