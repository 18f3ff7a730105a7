"""Maps of heads: coloured where a score is known to say something, and alike ones side by side."""

from __future__ import annotations

import base64
import io
from dataclasses import replace

import numpy as np
import pandas
import pytest
from PIL import Image
from scipy.spatial.distance import squareform

from papa.descriptions.seen import ATTENTIONS
from papa.descriptions.similarity import clusters
from papa.ranking.seeds import HeadScores, TrainedLambda
from papa.reporting.described import described_tables
from papa.reporting.figures.heads import alike_charts, head_maps, heads_figure
from papa.reporting.figures.matrices import TOP
from tests.reporting.heads import heads_of

MEANS = np.array([[0.5, 0.52, 0.48], [0.6, 0.4, 0.505]])


def trained(*shifts: float) -> TrainedLambda:
    """λ of a seed for each shift around the means."""
    return TrainedLambda({seed: (MEANS + shift)[None] for seed, shift in enumerate(shifts)})


def test_only_what_is_told_from_one_half_has_colour_and_a_dot() -> None:
    """Three seeds 0.01 apart: half the interval is 4.303 · 0.01 / √3 = 0.0248."""
    lambdas = trained(-0.01, 0.0, 0.01)
    (chart,) = head_maps(replace(heads_of(), lambdas=lambdas))
    nearer = chart.data["nearer_end"].to_numpy().reshape(2, 3)
    assert nearer.tolist() == [
        [0.5, 0.5, 0.5],
        [pytest.approx(0.5752, abs=1e-4), pytest.approx(0.4248, abs=1e-4), 0.5],
    ]
    assert chart.data["score"].tolist() == pytest.approx(MEANS.flatten().tolist())
    assert chart.svg().count('aria-roledescription="circle"') == lambdas.told.sum() == 2


def test_a_file_says_by_itself_what_it_shows() -> None:
    figure = heads_figure(replace(heads_of(), lambdas=trained(-0.01, 0.0, 0.01)))
    assert figure.name == "heads"
    drawn = figure.svg()
    for words in (
        "λ, all-MiniLM-L6-v2, reviews",
        "Dot, colour: the 95 % interval leaves 0.5 out.",
        "2 of 6 heads; by chance about 0.3 would.",
    ):
        assert f">{words}<" in drawn, words


def test_one_seed_is_coloured_by_lambda_itself_and_has_no_dots() -> None:
    of_one_seed = heads_figure(replace(heads_of(), lambdas=trained(0.0)))
    assert of_one_seed.data["nearer_end"].tolist() == pytest.approx(MEANS.flatten().tolist())
    assert of_one_seed.data["low"].isna().all()
    drawn = of_one_seed.svg()
    assert "Colour: λ itself; no interval." in drawn
    assert "Dot" not in drawn
    assert 'aria-roledescription="circle"' not in drawn


def test_the_score_of_one_seed_has_the_interval_of_its_standard_error() -> None:
    """Half of it is 1.96 · 0.01; without an error, and nothing else, there is none."""
    values, error = MEANS[None] - 0.5, np.full_like(MEANS, 0.01)
    computed = {"shapley": HeadScores(values, error), "greedy": HeadScores(values)}
    known, unknown = head_maps(replace(heads_of(ranked=False), computed=computed))
    half = (known.data["high"] - known.data["low"]) / 2
    assert half.tolist() == pytest.approx([0.0196] * 6, abs=1e-5)
    nearer = known.data["nearer_end"].tolist()
    assert nearer == pytest.approx([0, 0.0004, -0.0004, 0.0804, -0.0804, 0], abs=1e-5)
    assert unknown.data["low"].isna().all()
    of_two = HeadScores(np.concatenate([values, values + 0.01]), error)
    assert not np.allclose(of_two.interval, HeadScores(values, error).interval), "over seeds"


def test_scores_that_a_study_names_have_a_map_beside() -> None:
    given = {"duo.tsv": np.arange(6.0).reshape(2, 3)}
    of_lambda, of_scores = head_maps(replace(heads_of(), lambdas=trained(0.0, 0.01), given=given))
    assert of_lambda.title.startswith("λ, ")
    assert of_scores.data["score"].tolist() == [0, 1, 2, 3, 4, 5]
    assert 'aria-roledescription="circle"' not in of_scores.svg()
    assert head_maps(heads_of(ranked=False)) == []


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
    boxes = charts[0].specification["layer"][-1]
    image = charts[0].specification["data"]["values"][0]["image"].partition(",")[2]
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
    _, pairs, groups = described_tables({"similarity": frame()})
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
    assert not any("alike" in table.heading for table in described_tables({"similarity": none}))
