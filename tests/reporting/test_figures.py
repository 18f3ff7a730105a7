"""What the figures draw, and that equal data give equal files."""

from __future__ import annotations

import base64
import io
import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy
import pandas
import pytest
import torch
from PIL import Image

from papa.attention.constants import control
from papa.attention.patterns import head_patterns
from papa.errors import SpecError
from papa.reporting.figures.chart import Chart
from papa.reporting.figures.drops import drops_figure, drops_over_tasks
from papa.reporting.figures.matrices import TOP, UNSEEN, example_heads, matrices_figure
from papa.reporting.figures.scores import scores_figure
from papa.reporting.summary import summarise
from tests.reporting.heads import heads_of
from tests.reporting.studies import results

TASKS = (("cola", "matthews"), ("sst2", "accuracy"))
SHARE = "share of heads that stay input-dependent"


class Drawing:
    """A chart's SVG: what every mark says of itself to a screen reader, and how it looks."""

    def __init__(self, chart: Chart) -> None:
        self.root = ElementTree.fromstring(chart.svg())
        self.elements = list(self.root.iter())

    def marks(self, kind: str, said: str = "") -> list[dict[str, str]]:
        """The marks of a kind that say something: what each stands for, its attributes and, of
        text, its words.
        """
        found = []
        for element in self.elements:
            if element.get("aria-roledescription") in (kind, f"{kind} mark"):
                parts = element.get("aria-label", "").split("; ")
                facts = dict(part.split(": ", 1) for part in parts)
                found.append({**element.attrib, **facts, "text": element.text or ""})
        return [mark for mark in found if not said or said in mark]

    def texts(self) -> list[str]:
        """All words, line by line."""
        lines = [element for element in self.elements if element.tag.endswith(("text", "tspan"))]
        return [element.text for element in lines if element.text]

    def legend(self) -> list[str]:
        """The labels of all legends."""
        holders = [one for one in self.elements if "role-legend-label" in one.get("class", "")]
        texts = [text for holder in holders for text in holder.iter() if text.tag.endswith("text")]
        return [text.text or "" for text in texts]


def number(text: str) -> float:
    return float(text.replace("\u2212", "-"))


def place(mark: dict[str, str]) -> list[float]:
    return [float(part) for part in re.findall(r"[-\d.]+", mark["transform"])]


def test_scores_stand_at_even_steps_with_their_intervals() -> None:
    summary = summarise(results())
    drawn = Drawing(scores_figure(summary))
    texts = drawn.texts()
    assert all(label in texts for label in ("1", "1/2", "1/8", "1/16", "(5.6 %)", "0"))
    points = drawn.marks("point")
    numpy.testing.assert_allclose(
        [number(mark["accuracy"]) for mark in points], summary["mean"], atol=1e-9
    )
    across = [place(mark)[0] for mark in points]
    numpy.testing.assert_allclose(numpy.diff(across), (across[-1] - across[0]) / 4)
    bars = drawn.marks("rule", "high")
    ends = [[number(mark["accuracy"]), number(mark["high"])] for mark in bars]
    numpy.testing.assert_allclose(ends, summary[["low", "high"]].to_numpy(), atol=1e-9)
    # As high as they say: in the units of the points.
    unit = (place(points[-1])[1] - place(points[0])[1]) / (
        summary["mean"].iloc[-1] - summary["mean"].iloc[0]
    )
    heights = [float(mark["y2"]) for mark in bars]
    numpy.testing.assert_allclose(heights, unit * (summary["high"] - summary["low"]))


def test_one_panel_a_task_and_one_line_a_combination() -> None:
    frame = results(("a", "b"), TASKS, ("average", "zeros"))
    drawn = Drawing(scores_figure(summarise(frame)))
    assert {"cola", "sst2", "λ ascending"} <= set(drawn.texts())
    first, other = (
        {
            (mark["encoder"], mark["constants"]): (mark["stroke"], mark["stroke-dasharray"])
            for mark in drawn.marks("line", metric)
        }
        for metric in ("Matthews", "accuracy")
    )
    assert first == other
    assert list(first) == [(one, kind) for one in "ab" for kind in ("average", "zeros")]
    assert len(set(first.values())) == 4
    points = drawn.marks("point")
    shapes = {(mark["encoder"], re.sub(r"[\d.,-]+", "", mark["d"])) for mark in points}
    assert len(shapes) == 2, "a reader without colours tells encoders apart"
    assert drawn.legend() == ["a", "b", "average", "zeros"]


def test_close_lines_stand_apart_but_never_reach_the_next_fraction() -> None:
    orders = ("lambda", "lambda_descending", "random", "first_to_last")
    frame = results(("a", "b", "c"), constants=("average", "zeros", "identity"), orders=orders)
    points = Drawing(scores_figure(summarise(frame))).marks("point")
    across = sorted({place(mark)[0] for mark in points})
    assert len(across) == 5 * 36
    steps = numpy.diff(across)
    assert steps[35::36].min() > 36 * steps[0]


def test_what_is_not_known_is_not_drawn() -> None:
    """No interval of one seed, no baselines of a model's own head."""
    of_one_seed = summarise(results(seeds=(0,)))
    summary = of_one_seed.assign(always_one_answer=math.nan, word_embeddings=math.nan)
    drawn = Drawing(scores_figure(summary))
    assert len(drawn.marks("point")) == 5
    assert drawn.marks("rule", "high") == drawn.marks("rule", "baseline") == []
    assert "NaN" not in ElementTree.tostring(drawn.root, "unicode")


def test_a_panel_has_both_baselines_where_they_score() -> None:
    frame = results(("a", "b"), TASKS)
    frame.loc[frame["encoder"] == "b", "word_embeddings"] += 0.03
    summary = summarise(frame)
    drawn = Drawing(scores_figure(summary))
    for metric in ("Matthews", "accuracy"):
        rules = [mark for mark in drawn.marks("rule", "baseline") if metric in mark]
        found = {(mark["baseline"], round(number(mark[metric]), 6)) for mark in rules}
        assert found == {
            ("always 'negative'", 0.5),
            ("word embeddings alone", 0.601),
            ("word embeddings alone", 0.631),
        }
        colours = {mark["encoder"]: mark["stroke"] for mark in drawn.marks("line", metric)}
        words = {
            round(number(mark[metric]), 3): mark["stroke"] for mark in rules if "encoder" in mark
        }
        assert words == {0.601: colours["a"], 0.631: colours["b"]}
        points = drawn.marks("point", metric)
        (top, bottom), (high, low) = zip(
            *sorted((place(mark)[1], number(mark[metric])) for mark in (points[0], points[-1])),
            strict=True,
        )
        for rule in rules:
            expected = top + (bottom - top) * (high - number(rule[metric])) / (high - low)
            assert place(rule)[1] == pytest.approx(expected, abs=1e-6)
    texts = drawn.texts()
    assert texts.count("always 'negative'") == texts.count("word embeddings alone") == 4, (
        "named once a panel, on a halo"
    )
    drawn_as = [element.get("class", "") for element in drawn.elements]
    kinds = [name.split()[0] for name in drawn_as if "concat_0_layer" in name]
    text = kinds.index("mark-text")
    assert kinds.index("mark-line") < text < kinds.index("mark-symbol"), "names hide no point"


def test_a_dagger_marks_the_lines_whose_drops_are_inconclusive() -> None:
    frame = results(("a", "b"), TASKS)
    frame.loc[(frame["encoder"] == "b") & (frame["task"] == "cola"), "word_embeddings"] = 0.75
    drawn = Drawing(scores_figure(summarise(frame)))
    (mark,) = [mark for mark in drawn.marks("text") if mark["text"] == "†"]
    last = [mark for mark in drawn.marks("point", "Matthews") if mark["encoder"] == "b"][-1]
    assert number(mark["Matthews"]) == number(last["Matthews"]), "it stands at the line's end"
    assert any(text.startswith("† The original does not beat") for text in drawn.texts())
    without = Drawing(scores_figure(summarise(results(("a", "b"), TASKS)))).texts()
    assert "†" not in "".join(without)


def test_an_encoder_is_one_point_of_its_means_over_tasks() -> None:
    summary = summarise(results(("a", "b", "c"), TASKS))
    drops = drops_over_tasks(summary)
    originals = summary[summary["fraction"] == 1].groupby("encoder")["mean"].mean()
    lost = summary[summary["fraction"] == 0].groupby("encoder")["relative_drop"].mean()
    drawn = Drawing(drops_figure(drops))
    points = drawn.marks("point")
    assert [number(mark["mean original score over 2 tasks"]) for mark in points] == pytest.approx(
        list(originals)
    )
    across = numpy.array([place(mark)[0] for mark in points])
    assert numpy.corrcoef(across, lost)[0, 1] == pytest.approx(1)
    middle = (across.min() + across.max()) / 2
    sides = {mark["text"]: mark["text-anchor"] for mark in drawn.marks("text")}
    assert sides == {
        name: "end" if at > middle else "start" for name, at in zip("abc", across, strict=True)
    }
    assert len({mark["fill"] for mark in points}) == 3
    expected = numpy.corrcoef(originals, lost)[0, 1]
    assert f"r = {expected:.2f}" in drawn.texts()
    assert drops.caption.startswith(
        "Each encoder's original score against its relative drop with every head constant, means "
        "over cola and sst2. "
    )
    of_two = drops_over_tasks(summarise(results(("a", "b"), TASKS)))
    assert math.isnan(of_two.correlation)
    assert "r =" not in "".join(Drawing(drops_figure(of_two)).texts())


def test_a_task_below_its_baseline_is_left_out_for_every_encoder() -> None:
    summary = summarise(results(("a", "b", "c"), TASKS))
    summary["beats_baseline"] = (summary["encoder"] != "b") | (summary["task"] != "cola")
    drops = drops_over_tasks(summary)
    assert drops.tasks == ("sst2",)
    sst2 = summary[(summary["task"] == "sst2") & (summary["fraction"] == 1)]
    numpy.testing.assert_allclose(drops.points["original"], sst2["mean"])
    assert drops.caption.endswith(
        "constant, on sst2. Left out: cola (b does not beat the baseline)."
    )


def test_a_task_without_a_share_is_left_out_and_so_is_all_without_a_replacement() -> None:
    frame = results(("a", "b"), (*TASKS, ("mlm", "negative_log_perplexity")))
    frame.loc[frame["task"] == "mlm", "score"] -= 3
    drops = drops_over_tasks(summarise(frame))
    assert (drops.tasks, list(drops.left_out)) == (("cola", "sst2"), ["mlm"])
    assert drops_over_tasks(summarise(frame[frame["fraction"] == 1])).points.empty


def test_of_several_lines_the_first_is_drawn_and_named() -> None:
    summary = summarise(results(("a", "b"), TASKS, ("zeros", "average"), ("lambda", "random")))
    drops = drops_over_tasks(summary)
    alone = drops_over_tasks(
        summary[(summary["constants"] == "zeros") & (summary["order"] == "lambda")]
    )
    pandas.testing.assert_frame_equal(drops.points, alone.points)
    assert "constant (zeros), means" in drops.caption
    partial = summary[summary["fraction"] > 0]
    assert "relative drop at 1/16 (zeros, λ ascending)" in drops_over_tasks(partial).caption


def images(chart: Chart) -> list[numpy.ndarray]:
    """The levels of every heat map."""
    panels = [panel["data"]["values"][0]["image"] for panel in chart.specification["hconcat"]]
    contents = [base64.b64decode(image.partition(",")[2]) for image in panels]
    return [numpy.array(Image.open(io.BytesIO(content))) for content in contents]


def test_matrices_are_drawn_as_they_are_on_one_scale() -> None:
    heads = heads_of()
    chart = matrices_figure(heads)
    drawn = [heads.matrices[at].numpy() for at in example_heads(heads)]
    largest = max(matrix.max() for matrix in drawn)
    assert len(drawn) == len(images(chart)) == 4
    assert len({matrix.max() for matrix in drawn}) == 4, "each has a largest entry of its own"
    for levels, matrix in zip(images(chart), drawn, strict=True):
        numpy.testing.assert_allclose(levels, TOP * (matrix / largest) ** 0.5, atol=1.01)
    assert sum(element.tag.endswith("image") for element in Drawing(chart).elements) == 4


def test_slots_never_seen_are_left_out_of_a_heat_map() -> None:
    heads = heads_of(unseen=5)
    heads.seen[1, 0] = False
    levels = images(matrices_figure(heads))
    assert {matrix.shape for matrix in levels} == {(3, 3)}
    assert all((matrix == UNSEEN).sum() == 1 and matrix[1, 0] == UNSEEN for matrix in levels)


def test_heat_maps_name_cls_and_sep_on_both_axes() -> None:
    """Of a pair, with a [SEP] in the middle; and where slots share rows, too."""
    for slots in (32, 300):
        heads = heads_of(slots=slots, unseen=6, special=(0, slots // 2, slots - 1))
        elements = Drawing(matrices_figure(heads)).elements
        labels = [one.text for one in elements if one.get("font-weight") == "bold"]
        assert labels.count("[CLS]") == 4 * 2
        assert labels.count("[SEP]") == 4 * 2 * 2


def test_example_heads_show_each_pattern() -> None:
    slots = 16
    matrices = control("identity", 2, 2, slots).matrices
    matrices[0, 1] = 0.0
    matrices[0, 1, :, 0] = 1.0
    matrices[1, 0] = 0.0
    matrices[1, 0, :, -1] = 1.0
    matrices[1, 1] = 1 / slots
    seen = torch.ones(slots, slots, dtype=torch.bool)
    patterns = head_patterns(matrices, seen, (0, slots - 1))
    own = {"matrices": matrices, "seen": seen, "special": (0, slots - 1), "patterns": patterns}
    texts = Drawing(matrices_figure(replace(heads_of(), **own))).texts()
    assert [text for text in texts if ": layer" in text] == [
        "diagonal: layer 0, head 0",
        "[CLS]: layer 0, head 1",
        "[SEP]: layer 1, head 0",
        "spread: layer 1, head 1",
    ]


@pytest.mark.parametrize(
    "draw", [scores_figure, lambda summary: drops_figure(drops_over_tasks(summary))]
)
def test_equal_data_give_equal_files(draw: Callable[[pandas.DataFrame], Chart]) -> None:
    summary = summarise(results(("a", "b"), TASKS))
    first, second = draw(summary), draw(summary)
    assert first.svg() == second.svg()
    png = first.png()
    assert png == second.png()
    assert png.startswith(b"\x89PNG")
    assert len(png) > 10_000
    other = summary.copy()
    other[["mean", "low", "high"]] += 0.01
    other["relative_drop"] *= 1.5
    assert draw(other).svg() != first.svg()
    # Vega-Lite's schema, which Altair checks, has no empty channels.
    assert not re.search(r'"(color|text|x|y|shape)": null', json.dumps(first.specification))


def test_gradients_have_the_same_names_whatever_was_drawn_before() -> None:
    chart = matrices_figure(heads_of())
    first, second = chart.svg(), chart.svg()
    assert first == second
    assert set(re.findall(r"\bgradient_\d+", first)) == {"gradient_0"}


def test_a_figure_is_saved_by_its_ending_and_shown_by_notebooks(tmp_path: Path) -> None:
    """It looks the same on every machine: its first font comes with the drawing library, and it
    stands on white.
    """
    chart = scores_figure(summarise(results()))
    chart.save(tmp_path / "a.png")
    chart.save(str(tmp_path / "a.svg"))
    assert (tmp_path / "a.png").read_bytes() == chart.png()
    drawn = (tmp_path / "a.svg").read_text()
    assert drawn == chart.svg() == chart._repr_svg_()
    fonts = set(re.findall(r'font-family="([^"]*)"', drawn))
    assert fonts == {"&quot;Liberation Sans&quot;, Arial, Helvetica, sans-serif"}
    assert 'fill="white"' in drawn
    assert "var(" not in drawn
    with pytest.raises(SpecError, match=r"a\.pdf: give a file that ends in \.png or \.svg"):
        chart.save(tmp_path / "a.pdf")


HOSTILE = [
    r"$\nosuch$",
    "_under",
    "\x1b[31mred\x00 --> <script>alert(1)</script>",
    "日本語\nb & c",
    "\ufffe",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_names_from_folders_are_drawn_as_text(name: str) -> None:
    """Mathematics that is none, characters that XML or the font lack, markup: a figure is drawn and
    well formed.
    """
    summary = summarise(results(encoders=("all-MiniLM-L6-v2", name), fractions=(1.0, 0.0)))
    scores = scores_figure(summary)
    held = re.sub("[^\t\n -\ud7ff\ue000-\ufffd]", "\ufffd", name)
    legend = [text.split() for text in Drawing(scores).legend()]
    assert legend == [["all-MiniLM-L6-v2"], held.split()]
    drops, matrices = drops_figure(drops_over_tasks(summary)), matrices_figure(heads_of(name))
    for figure in (scores, drops, matrices):
        assert figure.png().startswith(b"\x89PNG")
        assert not any(one.tag.endswith("script") for one in Drawing(figure).elements)


def test_both_readings_of_an_average_drop_are_named() -> None:
    """Drops of 50 and 10 %: 30 % on average, and of the mean score, 0.5 and 0.9, less."""
    frame = results(("a", "b"), TASKS, fractions=(1.0, 0.0))
    scores = {("cola", 1.0): 0.5, ("cola", 0.0): 0.25, ("sst2", 1.0): 0.9, ("sst2", 0.0): 0.81}
    frame["score"] = [scores[place] for place in zip(frame["task"], frame["fraction"], strict=True)]
    drops = drops_over_tasks(summarise(frame.assign(always_one_answer=0.1, word_embeddings=0.1)))
    assert (
        "The mean of the tasks' drops, which is drawn, and the drop of their mean score: a 30.0 % "
        "and 24.3 %; b" in (drops.caption)
    )
