"""What the figures draw, and that equal data give equal files."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy
import pandas
import pytest
import torch
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure

from papa.attention.controls import identity
from papa.attention.patterns import head_patterns, special_slots
from papa.reporting.figures import (
    HeadMatrix,
    drops_figure,
    drops_points,
    matrices_figure,
    png_bytes,
    scores_figure,
    svg_text,
)
from papa.reporting.figures.drops import correlation
from papa.reporting.heads import example_heads
from papa.reporting.summary import summarise
from tests.reporting.studies import results

TASKS = (("cola", "matthews"), ("sst2", "accuracy"))


def test_scores_stand_at_even_steps_with_their_intervals() -> None:
    summary = summarise(results())
    figure = scores_figure(summary)
    (panel,) = figure.axes
    assert [label.get_text() for label in panel.get_xticklabels()] == ["1", "1/2", "1/8", "1/16\n(5.6 %)", "0"]
    (drawn,) = panel.containers
    assert isinstance(drawn, ErrorbarContainer)
    line, _, (bars,) = drawn.lines
    numpy.testing.assert_array_equal(line.get_xdata(), range(5))
    numpy.testing.assert_allclose(line.get_ydata().astype(float), summary["mean"])
    ends = numpy.array([segment[:, 1] for segment in bars.get_segments()], dtype=float)
    numpy.testing.assert_allclose(ends, summary[["low", "high"]].to_numpy())


def test_one_panel_a_task_and_one_line_a_combination() -> None:
    frame = results(("a", "b"), TASKS, ("average", "zeros"))
    figure = scores_figure(summarise(frame))
    panels = [panel for panel in figure.axes if panel.get_visible()]
    assert [panel.get_title(loc="left") for panel in panels] == ["cola", "sst2"]
    for panel in panels:
        assert [drawn.get_label() for drawn in panel.containers] == [
            "a, average",
            "a, zeros",
            "b, average",
            "b, zeros",
        ]
        looks = {
            (drawn.lines[0].get_color(), drawn.lines[0].get_linestyle(), drawn.lines[0].get_marker())
            for drawn in panel.containers
        }
        assert len(looks) == 4
    assert panels[0].containers[2].lines[0].get_color() == panels[1].containers[2].lines[0].get_color()


def test_one_seed_is_drawn_without_bars_of_nan() -> None:
    figure = scores_figure(summarise(results(seeds=(0,))))
    (drawn,) = figure.axes[0].containers
    ends = numpy.array([segment[:, 1] for segment in drawn.lines[2][0].get_segments()], dtype=float)
    assert numpy.isfinite(ends).all()


def test_drops_are_original_score_against_relative_drop() -> None:
    summary = summarise(results(("a", "b", "c"), TASKS))
    points = drops_points(summary)
    assert len(points) == 6
    panel = drops_figure(summary).axes[0]
    cola = points[points["task"] == "cola"]
    drawn = [(line.get_xdata()[0], line.get_ydata()[0]) for line in panel.get_lines()]
    numpy.testing.assert_allclose(drawn, numpy.stack([cola["original"], 100 * cola["relative_drop"]], axis=1))
    expected = numpy.corrcoef(cola["original"], cola["relative_drop"])[0, 1]
    assert panel.get_title(loc="left") == f"cola (r = {expected:.2f})"


def test_two_encoders_have_no_correlation() -> None:
    points = drops_points(summarise(results(("a", "b"), TASKS)))
    cola = points[points["task"] == "cola"]
    assert math.isnan(correlation(cola["original"], cola["relative_drop"]))


def test_matrices_are_drawn_as_they_are() -> None:
    matrix = numpy.random.default_rng(0).random((8, 8))
    figure = matrices_figure([HeadMatrix("first", matrix), HeadMatrix("second", matrix.T)])
    images = [panel.get_images()[0].get_array() for panel in figure.axes[:2]]
    numpy.testing.assert_array_equal(images[0], matrix)
    numpy.testing.assert_array_equal(images[1], matrix.T)


def test_slots_never_seen_are_left_out_of_a_heat_map() -> None:
    matrix = numpy.full((8, 8), numpy.nan)
    matrix[numpy.ix_([0, 1, 7], [0, 1, 7])] = numpy.arange(9.0).reshape(3, 3)
    panel = matrices_figure([HeadMatrix("head", matrix)]).axes[0]
    numpy.testing.assert_array_equal(panel.get_images()[0].get_array(), numpy.arange(9.0).reshape(3, 3))
    assert [label.get_text() for label in panel.get_xticklabels()] == ["0", "1", "7"]


def test_example_heads_show_each_pattern_and_hide_what_was_never_seen() -> None:
    slots = 16
    matrices = identity(2, 2, slots).matrices
    matrices[0, 1] = 0.0
    matrices[0, 1, :, 0] = 1.0
    matrices[1, 0] = 0.0
    matrices[1, 0, :, -1] = 1.0
    matrices[1, 1] = 1 / slots
    seen = torch.ones(slots, slots, dtype=torch.bool)
    seen[3, 5] = False
    heads = example_heads(matrices, seen, head_patterns(matrices, seen, special_slots("text", slots)))
    assert [head.title for head in heads] == [
        "diagonal: layer 1, head 1",
        "[CLS]: layer 1, head 2",
        "[SEP]: layer 2, head 1",
        "spread: layer 2, head 2",
    ]
    assert all(numpy.isnan(head.matrix).sum() == 1 for head in heads)


@pytest.mark.parametrize("draw", [scores_figure, drops_figure])
def test_equal_data_give_equal_files(draw: Callable[[pandas.DataFrame], Figure]) -> None:
    summary = summarise(results(("a", "b", "c"), TASKS))
    first, second = draw(summary), draw(summary)
    assert svg_text(first) == svg_text(second)
    assert "dc:date" not in svg_text(first)
    png = png_bytes(first)
    assert png == png_bytes(second)
    assert png.startswith(b"\x89PNG")
    assert len(png) > 10_000
    other = summary.copy()
    other[["mean", "low", "high"]] += 0.01
    other["relative_drop"] *= 1.5
    assert svg_text(draw(other)) != svg_text(first)
