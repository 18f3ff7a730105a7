"""Figures, as vl-convert draws them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pandas
import pytest

from papa.errors import DataError, SpecError
from papa.reporting.figures import Figure, drop_panels, encoders_figure, score_panels, scores_figure
from papa.reporting.heads import chosen_figure, head_panels
from papa.reporting.tables import REFERENCE_COLUMNS, comparison_table, read_reference, score_tables
from papa.scores.summary import compared, summarise
from tests.reporting.studies import LOG, ROWS, average_of, results, scores_of

TASKS = (("cola", "matthews"), ("mrpc", "f1"))


def texts(figure: Figure) -> list[str]:
    return [
        element.text or ""
        for element in ElementTree.fromstring(figure.svg()).iter()
        if element.text
    ]


def domains(figure: Figure, channel: str) -> list[object]:
    """Those that the specification gives to one channel, wherever it is."""

    def domains_in(specification: Any) -> Iterator[Any]:
        if isinstance(specification, dict):
            if "scale" in (encoding := specification.get(channel) or {}):
                yield encoding["scale"]["domain"]
            for inner in specification.values():
                yield from domains_in(inner)
        elif isinstance(specification, list):
            for inner in specification:
                yield from domains_in(inner)

    return [*domains_in(figure.specification)]


def marks(figure: Figure, kind: str) -> int:
    return len(re.findall(rf'aria-roledescription="{kind}"', figure.svg()))


def test_a_score_is_a_point_with_its_interval_a_line_for_each_combination() -> None:
    figure = scores_figure(summarise(results(("a", "b"), TASKS, orders=("lambda", "random"))))
    assert marks(figure, "point") == 2 * 2 * 2 * 5
    assert marks(figure, "line mark") == 2 * 2 * 2
    drawn = {*texts(figure)}
    assert {"cola", "mrpc", "a", "b", "λ ascending", "1/16 (5.6 %)", "Matthews"} <= drawn
    one_seed = scores_figure(summarise(results(seeds=(0,))))
    three_seeds = scores_figure(summarise(results()))
    assert marks(three_seeds, "rule mark") == marks(one_seed, "rule mark") + 5, "no interval"


def test_baselines_that_are_not_beaten_have_a_dagger() -> None:
    frame = results(("a", "b"))
    names = {"always one answer", "word embeddings alone"}
    assert (names | {"†"}) - {*texts(scores_figure(summarise(frame)))} == {"†"}
    without_baselines = frame.assign(always_one_answer=float("nan"), word_embeddings=float("nan"))
    assert not names & {*texts(scores_figure(summarise(without_baselines)))}
    frame.loc[frame["encoder"] == "b", "word_embeddings"] = 0.9
    assert texts(scores_figure(summarise(frame))).count("†") == 4, "at each fraction below 1"


def test_figures_have_a_panel_for_each_task_or_fraction() -> None:
    panels = score_panels(summarise(results(("a", "b"), TASKS, constants=("average", "zeros"))))
    assert [panel.title for panel in panels] == ["cola", "mrpc"]
    assert marks(panels[0], "point") == 2 * 2 * 5
    assert {"Matthews", "a", "b"} <= {*texts(panels[0])}
    frame = results(("a", "b"), fractions=(1.0, 0.5, 0.0))
    frame.loc[frame["encoder"] == "b", "word_embeddings"] = 0.9
    half, none = drop_panels(summarise(frame))
    assert (half.title, none.title) == ("1/2", "0")
    assert {"reviews · a", "reviews · b †"} <= {*texts(half)}
    assert marks(half, "point") == 2


def test_drops_of_substitutes_share_an_axis() -> None:
    summary = summarise(results(("a", "b"), TASKS, constants=("average", "zeros")))
    panels = drop_panels(summary)
    assert marks(panels[0], "point") == 2 * 2 * 2
    assert {"average", "zeros"} <= {*texts(panels[0])}
    assert len({json.dumps(domain) for panel in panels for domain in domains(panel, "x")}) == 1
    (encoders, *_), (scores, *_) = (
        domains(figure, "color") for figure in (panels[0], scores_figure(summary))
    )
    assert encoders == scores == ["average", "zeros"]
    (axis_title,) = {
        text for text in texts(encoders_figure(summary) or panels[0]) if "relative drop" in text
    }
    assert "(average)" in axis_title


def test_a_row_without_a_relative_drop_stays_in_the_figure() -> None:
    frame = results(("a",), TASKS, fractions=(1.0, 0.0))
    cola = frame["task"] == "cola"
    frame.loc[cola, "score"] = 0.01 * frame["seed"] - 0.01
    (panel,) = drop_panels(summarise(frame))
    assert marks(panel, "point") == 1
    assert any(text.startswith("cola · a †") for text in texts(panel))


def test_drops_of_losses_are_in_nats_or_perplexity_ratios() -> None:
    frame = results(("a",), (*TASKS, ("words", LOG)), fractions=(1.0, 0.0))
    frame.loc[frame["metric"] == LOG, "score"] -= 5
    shares, nats = drop_panels(summarise(frame))
    assert {"cola · a", "mrpc · a"} <= {*texts(shares)}
    assert "words · a" in texts(nats)
    assert not any("%" in text for text in texts(nats))
    assert any(re.fullmatch(r"× 1\.\d+", text) for text in texts(nats))


def test_panels_of_one_metric_share_their_axis() -> None:
    tasks = (("cola", "matthews"), ("reviews", "accuracy"), ("sst2", "accuracy"))
    frame = results(tasks=tasks)
    frame.loc[frame["task"] == "sst2", "score"] -= 0.1
    axes = [domains(panel, "y")[0] for panel in score_panels(summarise(frame))]
    assert axes[0] != axes[1] == axes[2]


def test_the_substitute_is_named_where_colours_are_of_encoders() -> None:
    one_encoder, two = (scores_figure(summarise(results(names))) for names in (("a",), ("a", "b")))
    assert "average" in texts(one_encoder)
    assert any(text.endswith("others: average") for text in texts(two))


def test_no_text_lies_on_a_line_of_a_baseline() -> None:
    """Both are near each other: they are named in the legend alone."""
    frame = results().assign(word_embeddings=0.503)
    svg = ElementTree.fromstring(scores_figure(summarise(frame)).svg())
    legend = {
        text.text
        for group in svg.iter()
        if "role-legend-label" in group.get("class", "")
        for text in group.iter()
    }
    names = {"always one answer", "word embeddings alone"}
    assert names <= legend
    assert all(texts(scores_figure(summarise(frame))).count(name) == 1 for name in names)


def test_encoders_are_points_with_their_correlation() -> None:
    assert encoders_figure(summarise(results())) is None
    figure = encoders_figure(summarise(results(("a", "b", "c"), TASKS)))
    assert figure is not None
    assert marks(figure, "point") == 3
    assert re.match(r"Encoders, r = -?[01]\.\d\d", figure.title)
    two = encoders_figure(summarise(results(("a", "b"), TASKS)))
    assert two is not None
    assert two.title == "Encoders", "two points are always on a line"


def test_a_head_has_a_dot_where_its_interval_leaves_out_what_says_nothing() -> None:
    average = average_of(layers=2, heads=5)
    (panel,) = head_panels(scores_of(average))
    assert marks(panel, "circle") == 10
    assert "10 of 10 heads; by chance about 0.5 would." in texts(panel)
    (wide,) = head_panels(scores_of(average, half=0.2))
    assert marks(wide, "circle") == 6
    nearer = wide.data.set_index(["layer", "head"])["nearer"]
    nearer_bounds = nearer[0, 0], nearer[1, 4], nearer[0, 4]
    assert nearer_bounds == pytest.approx((0.7, 0.3, 0.5)), "the end that is nearer to .5"
    unknown = scores_of(average, "scores:mine").assign(low=float("nan"), high=float("nan"))
    (plain,) = head_panels(unknown)
    assert marks(plain, "circle") == 0


def test_matrices_of_each_pattern_are_drawn_on_one_scale() -> None:
    figure = chosen_figure(average_of(layers=2, heads=5, slots=6))
    head_names = set(figure.data["head"])
    assert {name.partition(":")[0] for name in head_names} == {
        "diagonal",
        "[CLS]",
        "[SEP]",
        "spread",
    }
    assert len(figure.data) == 4 * 36
    assert {"[CLS]", "[SEP]", "mean attention"} <= {*texts(figure)}
    assert len(chosen_figure(average_of(slots=200)).data["from"].unique()) <= 64
    few = chosen_figure(average_of(layers=1, heads=2, slots=6)).data["head"]
    assert {name.partition(":")[0] for name in few} == {"diagonal", "[CLS]"}, "no head on [SEP]"


def test_a_figure_is_saved_by_its_ending(tmp_path: Path) -> None:
    figure = scores_figure(summarise(results()))
    for ending, start in (("svg", b"<svg"), ("png", b"\x89PNG"), ("pdf", b"%PDF")):
        figure.save(tmp_path / f"figure.{ending}")
        assert (tmp_path / f"figure.{ending}").read_bytes().startswith(start)
    with pytest.raises(SpecError, match=r"figure\.jpg"):
        figure.save(tmp_path / "figure.jpg")


@pytest.mark.parametrize("name", ["<b>&amp;", "a\x00b", "\ufffe", "]]>", "'\"\\"])
def test_names_from_folders_are_drawn_as_text(name: str) -> None:
    frame: pandas.DataFrame = summarise(results((name, "other")))
    drawn_texts = texts(scores_figure(frame))
    assert re.sub("[\x00\ufffe]", "\ufffd", name) in drawn_texts


MODELS = ("all-MiniLM-L6-v2", "an encoder with a rather long name")
HEADER = ",".join(REFERENCE_COLUMNS)


def test_each_study_is_drawn_against_its_original_score() -> None:
    first = results(encoders=MODELS)
    second = first.assign(score=2 * first["score"])
    table = compared({"first": first, "second": second})
    for name, frame in (("first", first), ("second", second)):
        mine = table[table["study"] == name].reset_index(drop=True)
        contrasts = [column for column in mine if column.startswith("contrast")]
        expected = summarise(frame).drop(columns=contrasts)
        pandas.testing.assert_frame_equal(mine.drop(columns=["study", *contrasts]), expected)
        drops = table.loc[table["study"] == "first", "relative_drop"]
        assert mine["relative_drop"].tolist() == pytest.approx(drops.tolist())


def test_a_study_differs_from_the_first_by_an_interval_unless_by_metric() -> None:
    first = results()
    second = results(seeds=(3, 4, 5))
    second = second.assign(
        score=first["score"] - 0.05 + 0.002 * (second["seed"] - 4), seed=second["seed"]
    )
    table = compared({"first": first, "other": second}).set_index(["study", "fraction"])
    assert table.loc["first", "contrast"].isna().all(), "itself"
    assert set(table.loc["other", "contrast_with"]) == {"first"}
    over_seeds = 4.30265 * 0.002 / math.sqrt(3)
    over_examples = 3.84 / ROWS
    paired = math.hypot(over_seeds, over_examples)
    for cell in table.loc["other"].to_dict("records"):
        assert cell["contrast"] == pytest.approx(0.05)
        half = (cell["contrast_high"] - cell["contrast_low"]) / 2
        assert half == pytest.approx(paired, rel=1e-3)
    *_, contrasts = score_tables(compared({"first": first, "other": second}))
    assert (contrasts.heading, contrasts.lines[0]["Study"]) == ("Contrasts", "first − other")
    metric = compared({"a": first, "b": first.assign(metric="f1")})
    assert metric["contrast"].isna().all()
    assert "Contrasts" not in [table.heading for table in score_tables(metric)]


def test_the_legend_of_every_line_stays_inside() -> None:
    orders = ("lambda", "random")
    reviews = results(encoders=MODELS, orders=orders)
    questions = results(encoders=MODELS, orders=orders, tasks=(("questions", "f1"),))
    svg = scores_figure(compared({"first": reviews, "second": questions})).svg()
    root = ElementTree.fromstring(svg)
    labels = [element for element in root.iter() if "role-legend-label" in element.get("class", "")]
    texts = {text.text for element in labels for text in element.iter() if text.text}
    combinations = [
        f"{order}, {study_name}"
        for study_name in ("first", "second")
        for order in ("λ ascending", "random")
    ]
    assert texts == {*MODELS, *combinations, "always one answer", "word embeddings alone"}
    assert "…" not in svg


def reference(tmp_path: Path, *rows: str) -> pandas.DataFrame:
    path = tmp_path / "study.csv"
    path.write_text("\n".join(["# A note.", HEADER, *(f"{row},made up" for row in rows)]))
    return read_reference(path)


def test_ours_stand_beside_the_papers_with_the_difference(tmp_path: Path) -> None:
    ours = "somebody/all-minilm-l6-v2,reviews,average,lambda"
    another = "somebody/another,reviews,average,lambda,1,0.9"
    paper = reference(tmp_path, f"{ours},1,0.5", f"{ours},0,0.45", another, f"{ours},0.25,0.4")
    summary = summarise(results()).set_index("fraction")
    summary.loc[1.0, ["mean", "low", "high"]] = (0.61, 0.60, 0.62)
    summary.loc[0.0, ["mean", "low", "high", "relative_drop"]] = (0.40, 0.38, 0.42, 0.344)
    table = comparison_table(summary.reset_index(), paper)
    assert table.headings == [
        "Constants", "Input-dependent", "Score", "Paper's score", "Difference", "Drop",
        "Paper's drop", "Difference (points)",
    ]  # fmt: skip
    assert table.rows == [
        ["–", "1", "0.610 ± 0.010", "0.500", "+0.110", "0.0 %", "0.0 %", "+0.0"],
        ["average", "0", "0.400 ± 0.020", "0.450", "-0.050", "34.4 %", "10.0 %", "+24.4"],
    ]
    assert "for 2 of the study's 5 results" in table.note


def test_a_result_that_cells_share_is_compared_once(tmp_path: Path) -> None:
    paper = reference(
        tmp_path,
        "a,cola,average,lambda,1,0.5",
        "a,cola,average:mnli,lambda,0,0.4",
        "a,cola,trained:average,random,0.5,0.45",
        "a,another-task,average:mnli,lambda,0,0.1",
    )
    orders = ("lambda", "random")
    kinds = ("average:mnli", "trained:average")
    frame = results(("a",), (("cola", "matthews"),), kinds, orders, (1.0, 0.5, 0.0))
    table = comparison_table(summarise(frame), paper)
    assert [row[:3] for row in table.rows] == [
        ["–", "–", "1"],
        ["average:mnli", "–", "0"],
        ["trained:average", "random", "1/2"],
    ]
    assert "for 3 of the study's 7 results" in table.note


def test_encoders_that_share_the_last_part_of_their_names_are_two(tmp_path: Path) -> None:
    paper = reference(tmp_path, "bert,reviews,average,lambda,1,0.5")
    table = comparison_table(summarise(results(("one/bert", "two/bert"))), paper)
    assert [row[0] for row in table.rows] == ["one/bert", "two/bert"]


def test_what_is_no_reference_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "study.csv"
    with pytest.raises(DataError, match="No such file"):
        read_reference(path)
    texts = {
        f"{HEADER}\na,b,average,lambda,1,about 0.5,x": "about 0.5",
        "encoder,task\n": "constants.* not in index",
        "": "No columns",
    }
    for text, words in texts.items():
        path.write_text(text)
        with pytest.raises(DataError, match=words):
            read_reference(path)
