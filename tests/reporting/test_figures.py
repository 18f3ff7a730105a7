"""What the figures draw, and that equal data give equal files."""

from __future__ import annotations

import math
from collections.abc import Callable
from xml.etree import ElementTree

import numpy
import pandas
import pytest
import torch
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure

from papa.attention.constants import control
from papa.attention.patterns import head_patterns, special_slots
from papa.reporting.figures import (
    HeadMatrix,
    drops_figure,
    drops_over_tasks,
    matrices_figure,
    png_bytes,
    scores_figure,
    svg_text,
)
from papa.reporting.figures.matrices import example_heads
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


def test_an_encoder_is_one_point_of_its_means_over_tasks() -> None:
    summary = summarise(results(("a", "b", "c"), TASKS))
    drops = drops_over_tasks(summary)
    originals = summary[summary["fraction"] == 1].groupby("model")["mean"].mean()
    lost = summary[summary["fraction"] == 0].groupby("model")["relative_drop"].mean()
    panel = drops_figure(drops).axes[0]
    drawn = [(line.get_xdata()[0], line.get_ydata()[0]) for line in panel.get_lines()]
    numpy.testing.assert_allclose(drawn, numpy.stack([100 * lost, originals], axis=1))
    assert [text.get_text() for text in panel.texts] == ["a", "b", "c"]
    expected = numpy.corrcoef(originals, lost)[0, 1]
    assert panel.get_title(loc="left") == f"r = {expected:.2f}"
    assert drops.caption == (
        "Each encoder's original score against its relative drop with every head constant, means over cola and sst2."
    )


def test_two_encoders_have_no_correlation() -> None:
    drops = drops_over_tasks(summarise(results(("a", "b"), TASKS)))
    assert math.isnan(drops.correlation)
    assert drops_figure(drops).axes[0].get_title(loc="left") == ""


def test_a_task_below_its_baseline_is_left_out_for_every_encoder() -> None:
    summary = summarise(results(("a", "b", "c"), TASKS))
    summary["beats_baseline"] = (summary["model"] != "b") | (summary["task"] != "cola")
    drops = drops_over_tasks(summary)
    assert drops.tasks == ("sst2",)
    sst2 = summary[(summary["task"] == "sst2") & (summary["fraction"] == 1)]
    numpy.testing.assert_allclose(drops.points["original"], sst2["mean"])
    assert drops.caption.endswith("constant, on sst2. Left out: cola (b does not beat the baseline).")
    # Only the original counts: a replacement below the baseline is a finding.
    summary["beats_baseline"] = (summary["fraction"] > 0) | (summary["task"] != "cola")
    assert drops_over_tasks(summary).tasks == ("cola", "sst2")


def test_log_perplexities_are_no_part_of_a_mean_drop() -> None:
    frame = results(("a", "b"), (*TASKS, ("mlm", "negative_log_perplexity")))
    frame.loc[frame["task"] == "mlm", "score"] -= 3
    drops = drops_over_tasks(summarise(frame))
    assert drops.tasks == ("cola", "sst2")
    assert list(drops.left_out) == ["mlm"]


def test_of_several_lines_the_first_is_drawn_and_named() -> None:
    summary = summarise(results(("a", "b"), TASKS, ("zeros", "average"), ("lambda", "random")))
    drops = drops_over_tasks(summary)
    alone = drops_over_tasks(summary[(summary["constants"] == "zeros") & (summary["order"] == "lambda")])
    pandas.testing.assert_frame_equal(drops.points, alone.points)
    assert "constant (zeros), means" in drops.caption
    partial = summary[summary["fraction"] > 0]
    assert "relative drop at 1/16 (zeros, λ ascending)" in drops_over_tasks(partial).caption


def test_without_a_replacement_there_is_no_drop() -> None:
    assert drops_over_tasks(summarise(results(("a", "b"), TASKS, fractions=(1.0,)))).points.empty


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
    matrices = control("identity", 2, 2, slots).matrices
    matrices[0, 1] = 0.0
    matrices[0, 1, :, 0] = 1.0
    matrices[1, 0] = 0.0
    matrices[1, 0, :, -1] = 1.0
    matrices[1, 1] = 1 / slots
    seen = torch.ones(slots, slots, dtype=torch.bool)
    seen[3, 5] = False
    heads = example_heads(matrices, seen, head_patterns(matrices, seen, special_slots("text", slots)))
    assert [head.title for head in heads] == [
        "diagonal: layer 0, head 0",
        "[CLS]: layer 0, head 1",
        "[SEP]: layer 1, head 0",
        "spread: layer 1, head 1",
    ]
    assert all(numpy.isnan(head.matrix).sum() == 1 for head in heads)


@pytest.mark.parametrize("draw", [scores_figure, lambda summary: drops_figure(drops_over_tasks(summary))])
def test_equal_data_give_equal_files(draw: Callable[[pandas.DataFrame], Figure]) -> None:
    summary = summarise(results(("a",), TASKS))
    first, second = draw(summary), draw(summary)
    assert svg_text(first) == svg_text(second)
    assert "dc:date" not in svg_text(first)
    png = png_bytes(draw(summary))
    assert png == png_bytes(draw(summary))
    assert png.startswith(b"\x89PNG")
    assert len(png) > 10_000
    other = summary.copy()
    other[["mean", "low", "high"]] += 0.01
    other["relative_drop"] *= 1.5
    assert svg_text(draw(other)) != svg_text(first)


HOSTILE = [r"$\nosuch$", "_under", "\x1b[31mred\x00 --> <script>alert(1)</script>", "日本語\nb & c"]


@pytest.mark.parametrize("name", HOSTILE)
def test_names_from_folders_are_drawn_as_text(name: str) -> None:
    """Mathematics that is none, characters that XML or the font lack, markup: a figure is drawn and well formed."""
    summary = summarise(results(models=("all-MiniLM-L6-v2", name), fractions=(1.0, 0.0)))
    scores = scores_figure(summary)
    (legend,) = scores.legends
    assert [text.get_text().strip() for text in legend.get_texts()] == ["all-MiniLM-L6-v2", name]
    matrices = matrices_figure([HeadMatrix(name, numpy.zeros((4, 4)))])
    for figure in (scores, drops_figure(drops_over_tasks(summary)), matrices):
        assert png_bytes(figure).startswith(b"\x89PNG")
        tags = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(svg_text(figure)).iter()}
        assert "script" not in tags
