"""Maps of heads: coloured where a score is known to say something."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from papa.ranking.seeds import HeadScores, TrainedLambda
from papa.reporting.figures.heads import head_maps, heads_figure
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
