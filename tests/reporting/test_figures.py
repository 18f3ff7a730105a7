"""Figures, as vl-convert draws them."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pandas
import pytest
import torch

from papa.errors import SpecError
from papa.ranking.kv_groups import with_group_column
from papa.reporting.figures import Figure
from papa.reporting.heads import AttentionAverage, chosen_figure, head_panels, heads_figure
from papa.reporting.redundancy_figures import joint_effect_panels, joint_effects_figure
from papa.reporting.score_figures import drop_panels, encoders_figure, score_panels, scores_figure
from papa.scores.summary import summarise
from tests.reporting.studies import LOG, average_of, joint_effects, results, scores_of

TASKS = (("cola", "matthews"), ("mrpc", "f1"))


def texts(figure: Figure) -> list[str]:
    return [node.text for node in ElementTree.fromstring(figure.svg()).iter() if node.text]


def marks(figure: Figure, kind: str) -> int:
    return len(re.findall(rf'aria-roledescription="{kind}"', figure.svg()))


def test_a_score_is_a_point_with_its_interval_a_line_for_each_combination() -> None:
    figure = scores_figure(summarise(results(("a", "b"), TASKS, orders=("lambda", "random"))))
    assert marks(figure, "point") == 2 * 2 * 2 * 5
    assert marks(figure, "line mark") == 2 * 2 * 2
    drawn = {*texts(figure)}
    assert {"cola", "mrpc", "a", "b", "smallest λ first", "1/16 (4 of 72)", "Matthews"} <= drawn
    one_seed = scores_figure(summarise(results(seeds=(0,))))
    three_seeds = scores_figure(summarise(results()))
    assert marks(three_seeds, "rule mark") == marks(one_seed, "rule mark") + 5, "no interval"


def test_baselines_that_are_not_beaten_have_a_dagger() -> None:
    frame = results(("a", "b"))
    names = {"the best single answer", "word embeddings alone"}
    assert (names | {"†"}) - {*texts(scores_figure(summarise(frame)))} == {"†"}
    without_baselines = frame.assign(always_one_answer=float("nan"), word_embeddings=float("nan"))
    assert not names & {*texts(scores_figure(summarise(without_baselines)))}
    frame.loc[frame["encoder"] == "b", "word_embeddings"] = 0.9
    assert texts(scores_figure(summarise(frame))).count("†") == 4, "at each fraction below 1"


def test_compared_studies_have_their_own_baselines() -> None:
    studies = [
        summarise(results().assign(word_embeddings=score)).assign(study=name)
        for name, score in (("first", 0.6), ("second", 0.7))
    ]
    lines_of_two = marks(scores_figure(pandas.concat(studies)), "rule mark")
    lines_of_equal = marks(scores_figure(pandas.concat([studies[0], studies[0]])), "rule mark")
    assert lines_of_two == lines_of_equal + 2


def test_figures_have_a_panel_for_each_task_or_fraction() -> None:
    panels = score_panels(summarise(results(("a", "b"), TASKS, constants=("average", "zeros"))))
    assert [panel.title for panel in panels] == ["cola", "mrpc"]
    assert marks(panels[0], "point") == 2 * 2 * 5
    assert {"Matthews", "a", "b"} <= {*texts(panels[0])}
    frame = results(("a", "b"), fractions=(1.0, 0.5, 0.0))
    frame.loc[frame["encoder"] == "b", "word_embeddings"] = 0.9
    half, none = drop_panels(summarise(frame))
    assert (half.title, none.title) == ("1/2 of heads input-dependent", "every head constant")
    assert {"reviews · a", "reviews · b †"} <= {*texts(half)}
    assert marks(half, "point") == 2


def test_drops_of_substitutes_share_an_axis() -> None:
    summary = summarise(results(("a", "b"), TASKS, constants=("average", "zeros")))
    panels = drop_panels(summary)
    assert marks(panels[0], "point") == 2 * 2 * 2
    layers = [layer for panel in panels for layer in panel.specification["layer"]]
    axes = [layer["encoding"]["x"] for layer in layers if "x" in layer["encoding"]]
    domains = {tuple(axis["scale"]["domain"]) for axis in axes if "scale" in axis}
    assert len(domains) == 1


def test_drops_of_losses_are_in_nats_or_perplexity_ratios() -> None:
    frame = results(("a",), (*TASKS, ("words", LOG)), fractions=(1.0, 0.0))
    frame.loc[frame["metric"] == LOG, "score"] -= 5
    shares, nats = drop_panels(summarise(frame))
    assert {"cola · a", "mrpc · a"} <= {*texts(shares)}
    assert "words · a" in texts(nats)
    assert not any("%" in text for text in texts(nats))
    assert any(re.fullmatch(r"× 1\.\d+", text) for text in texts(nats))


def test_encoders_are_points_with_their_correlation() -> None:
    assert encoders_figure(summarise(results())) is None
    figure = encoders_figure(summarise(results(("a", "b", "c"), TASKS)))
    assert figure is not None
    assert marks(figure, "point") == 3
    assert re.match(r"Encoders, r = -?[01]\.\d\d", figure.title)
    two = encoders_figure(summarise(results(("a", "b"), TASKS)))
    assert two is not None
    assert two.title == "Encoders", "two points are always on a line"


def test_a_set_of_heads_has_a_point_for_both_effects_with_their_intervals() -> None:
    (panel,) = joint_effect_panels(joint_effects())
    assert marks(panel, "point") == 2 * 3
    intervals = marks(panel, "rule mark")
    assert {"9 heads", "36 heads", "54 heads"} <= {*texts(panel)}
    unknown = joint_effects().assign(joint_low=float("nan"), joint_high=float("nan"))
    (panel,) = joint_effect_panels(unknown)
    assert marks(panel, "rule mark") == intervals - 3


def test_significant_pairs_of_the_largest_redundancy_are_drawn() -> None:
    (panel,) = joint_effect_panels(joint_effects(p_holm=0.01))
    assert marks(panel, "point") == 2 * (3 + 5)
    names = [f"L0H0 + L1H{head}" for head in (6, 5, 4, 3, 2)]
    assert panel.data["set"].unique().tolist()[3:] == names
    effects = joint_effects(p_holm=0.01)
    effects["joint"] = effects["joint"].where(effects["pair"] == "", 0.001)
    (panel,) = joint_effect_panels(effects)
    assert marks(panel, "point") == 2 * 3, "pairs that would be points at 0"


def test_sets_of_one_size_have_names_of_their_own() -> None:
    sets = joint_effects()[:3].drop(columns=["fraction", "pair", "p_holm"])
    pairs = sets.assign(count=2, heads=[((0, 0), (1, 2)), ((0, 1), (1, 2)), ((1, 0),)])
    assert {"L0H0 + L1H2", "L0H1 + L1H2", "L1H0"} <= {*texts(joint_effects_figure(pairs))}
    assert marks(joint_effects_figure(sets.assign(count=36)), "point") == 2 * 3


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


def test_a_group_of_heads_is_one_square() -> None:
    frame = with_group_column(scores_of(average_of(layers=2, heads=5)), 3)
    (panel,) = head_panels(frame)
    assert marks(panel, "circle") == 10
    assert "10 of 10 groups of heads; by chance about 0.5 would." in texts(panel)


def test_matrices_of_each_pattern_are_drawn_on_one_scale() -> None:
    figure = chosen_figure(average_of(layers=2, heads=5, slots=6))
    head_names = set(figure.data["head"])
    patterns = {name.partition(":")[0] for name in head_names}
    assert patterns == {"diagonal", "[CLS]", "[SEP]", "spread"}
    assert len(figure.data) == 4 * 36
    assert {"[CLS]", "[SEP]", "mean attention"} <= {*texts(figure)}
    assert len(chosen_figure(average_of(slots=200)).data["from"].unique()) <= 64
    few = chosen_figure(average_of(layers=1, heads=2, slots=6)).data["head"]
    assert {name.partition(":")[0] for name in few} == {"diagonal", "[CLS]"}, "no head on [SEP]"


def test_a_row_of_several_slots_is_the_mean_of_observed_entries() -> None:
    slots = 130
    numbers = torch.arange(slots)
    observed = (numbers[:, None] + numbers) % 2 == 0
    matrices = 0.25 * observed.float().expand(1, 1, slots, slots)
    average = AttentionAverage("encoder", "reviews", matrices, observed, (0, slots - 1))
    weights = heads_figure(average, {(0, 0): "head"}).data["weight"]
    assert len(weights) < slots**2, "slots share rows"
    assert set(weights.dropna()) == {0.25}


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
