"""Figures, as vl-convert draws them."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pandas
import pytest

from papa.errors import SpecError
from papa.reporting.figures import Figure, drop_panels, encoders_figure, score_panels, scores_figure
from papa.reporting.heads import chosen_figure, head_panels
from papa.scores.summary import summarise
from tests.reporting.studies import average_of, results, scores_of

TASKS = (("cola", "matthews"), ("mrpc", "f1"))


def texts(figure: Figure) -> list[str]:
    return [one.text or "" for one in ElementTree.fromstring(figure.svg()).iter() if one.text]


def marks(figure: Figure, kind: str) -> int:
    """How many marks of a kind have a value that readers are told."""
    return len(re.findall(rf'aria-roledescription="{kind}"', figure.svg()))


def test_a_score_is_a_point_with_its_interval_a_line_for_each_combination() -> None:
    figure = scores_figure(summarise(results(("a", "b"), TASKS, orders=("lambda", "random"))))
    assert marks(figure, "point") == 2 * 2 * 2 * 5
    assert marks(figure, "line mark") == 2 * 2 * 2
    assert {"cola", "mrpc", "a", "b", "λ ascending", "1/16 (5.6 %)", "score"} <= {*texts(figure)}
    one_seed = scores_figure(summarise(results(seeds=(0,))))
    several = scores_figure(summarise(results()))
    assert marks(several, "rule mark") == marks(one_seed, "rule mark") + 5, "no interval"


def test_baselines_are_drawn_where_they_score_and_a_dagger_where_they_are_not_beaten() -> None:
    frame, names = results(("a", "b")), {"always one answer", "word embeddings alone"}
    assert (names | {"†"}) - {*texts(scores_figure(summarise(frame)))} == {"†"}
    own = frame.assign(always_one_answer=float("nan"), word_embeddings=float("nan"))
    assert not names & {*texts(scores_figure(summarise(own)))}
    frame.loc[frame["encoder"] == "b", "word_embeddings"] = 0.9
    assert texts(scores_figure(summarise(frame))).count("†") == 4, "at each fraction below 1"


def test_a_page_has_a_panel_a_task_and_drops_one_a_fraction() -> None:
    panels = score_panels(summarise(results(("a", "b"), TASKS, constants=("average", "zeros"))))
    assert [panel.title for panel in panels] == ["cola", "mrpc"]
    assert marks(panels[0], "point") == 2 * 2 * 5
    assert {"Matthews", "a", "b"} <= {*texts(panels[0])}
    frame = results(("a", "b"), fractions=(1.0, 0.5, 0.0))
    frame.loc[frame["encoder"] == "b", "word_embeddings"] = 0.9
    half, none = drop_panels(summarise(frame))
    assert (half.title, none.title) == ("1/2", "0")
    assert {"reviews · a", "reviews · b", "inconclusive"} <= {*texts(half)}
    assert marks(half, "point") == 2


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
    (told,) = head_panels(scores_of(average))
    assert marks(told, "circle") == 10
    assert "10 of 10 heads; by chance about 0.5 would." in texts(told)
    (wide,) = head_panels(scores_of(average, half=0.2))
    assert marks(wide, "circle") == 6
    nearer = wide.data.set_index(["layer", "head"])["nearer"]
    ends = nearer[0, 0], nearer[1, 4], nearer[0, 4]
    assert ends == pytest.approx((0.7, 0.3, 0.5)), "the end that is nearer to .5"
    unknown = scores_of(average, "scores:mine").assign(low=float("nan"), high=float("nan"))
    (plain,) = head_panels(unknown)
    assert marks(plain, "circle") == 0


def test_matrices_of_each_pattern_are_drawn_on_one_scale() -> None:
    figure = chosen_figure(average_of(layers=2, heads=5, slots=6))
    found = set(figure.data["head"])
    assert {name.partition(":")[0] for name in found} == {"diagonal", "[CLS]", "[SEP]", "spread"}
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
    with pytest.raises(SpecError, match="no figure is written to"):
        figure.save(tmp_path / "figure.jpg")


@pytest.mark.parametrize("name", ["<b>&amp;", "a\x00b", "\ufffe", "]]>", "'\"\\"])
def test_names_from_folders_are_drawn_as_text(name: str) -> None:
    frame: pandas.DataFrame = summarise(results((name, "other")))
    found = texts(scores_figure(frame))
    assert re.sub("[\x00\ufffe]", "\ufffd", name) in found
