"""The summary's numbers and how they, and names, are written."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pandas
import pytest
from rich.console import Console
from scipy import stats

from papa.errors import SpecError
from papa.reporting.answers import answers
from papa.reporting.tables import by_task, order_table, score_tables, summary_table
from papa.reporting.wording import (
    WrittenTable,
    fraction_label,
    order_label,
    percent_label,
    score_label,
)
from papa.scores.intervals import SeedScores
from papa.scores.order_comparison import compare_orders
from papa.scores.summary import LINE, not_beaten, read_table, summarise
from tests.reporting.studies import FRACTIONS, LOG, results

KINDS = ("average", "identity", "zeros")
ORDERS = ("lambda", "random")


def rendered(summary: pandas.DataFrame, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(summary_table(summary))
    return console.file.getvalue()  # type: ignore[attr-defined]


def order_frames(frame: pandas.DataFrame) -> tuple[pandas.DataFrame, pandas.DataFrame]:
    """Scores of orders, and pairs of them."""
    pairs, scores = compare_orders(frame, {}) or pytest.fail("one order alone")
    return scores, pairs


def written(frame: pandas.DataFrame) -> dict[str, WrittenTable]:
    return {table.heading: table for table in score_tables(summarise(frame))}


def over_examples(influence: numpy.ndarray) -> float:
    """Half the interval's width: the jackknife's, with what the rule of three leaves."""
    spread = 1.9605 * numpy.linalg.norm(influence - influence.mean())
    return math.hypot(spread, 3.84 / len(influence))


def interval(scores: numpy.ndarray, influence: numpy.ndarray) -> Any:
    """Low end, mean and high end: seeds by scipy's t, examples as above, added as variances."""
    low, high = stats.t.interval(0.95, len(scores) - 1, loc=0, scale=stats.sem(scores))
    mean = scores.mean()
    half = math.hypot((high - low) / 2, over_examples(influence))
    return pytest.approx([mean - half, mean, mean + half], rel=1e-4, abs=1e-6)


def test_intervals_are_those_of_scipy() -> None:
    """Drops and contrasts are paired by seed and by example."""
    frame = results(constants=KINDS, fractions=(1.0, 0.5, 0.0))
    cells = dict(list(frame.groupby(["constants", "fraction"])))
    for row in summarise(frame).to_dict("records"):
        kind = row["constants"]
        fraction = row["fraction"]
        cell = cells[kind, fraction]
        original = cells[kind, 1.0]
        first = cells["average", fraction]
        assert (row["seeds"], row["constant_heads"]) == (3, round((1 - fraction) * 72))
        bounds = [row[name] for name in ("low", "mean", "high")]
        assert bounds == interval(cell["score"].to_numpy(), cell["influence"].iloc[0])
        for name, reference_cell in (("difference", original), ("contrast", first)):
            difference_bounds = [row[f"{name}{end}"] for end in ("_low", "", "_high")]
            if fraction == 1 or reference_cell is cell:
                no_difference = 0.0 if name == "difference" else math.nan
                assert difference_bounds == pytest.approx([no_difference] * 3, nan_ok=True), (
                    "itself"
                )
                continue
            lost = reference_cell["score"].to_numpy() - cell["score"].to_numpy()
            assert difference_bounds == interval(
                lost, reference_cell["influence"].iloc[0] - cell["influence"].iloc[0]
            )
    assert "average − zeros" in rendered(summarise(frame))


def test_an_interval_is_clipped_at_the_best_score() -> None:
    frame = results(fractions=(1.0,)).assign(score=1.0)
    frame["influence"] = [numpy.zeros(100, numpy.float32)] * len(frame)
    point = summarise(frame).iloc[0]
    assert (point["mean"], point["high"]) == (1, 1)
    assert point["low"] == pytest.approx(1 - 0.038415, abs=1e-6)
    assert score_label(*point[["mean", "low", "high"]]) == "1.000 (0.962 to 1.000)"


def test_drops_are_relative_to_the_original() -> None:
    tasks = (("cola", "matthews"), ("sst2", "accuracy"))
    first, *rest = (row for _, row in results(("a", "b"), tasks, KINDS).iterrows())
    for _, line in summarise(pandas.DataFrame([first, *rest[::-1]])).groupby(LINE, sort=False):
        assert tuple(line["fraction"]) == FRACTIONS
        original = line["mean"].iloc[0]
        drops = line["relative_drop"]
        assert drops.tolist() == pytest.approx(((original - line["mean"]) / original).tolist())


def test_drops_need_fraction_one_as_intervals_need_two_seeds() -> None:
    frame = results(fractions=(0.5, 0.0))
    single_seed = results(seeds=(0,))
    assert summarise(frame)["relative_drop"].isna().all()
    assert written(frame)["Relative drop"].rows[0][1:] == ["– †", "– †"]
    assert summarise(single_seed)[["low", "high"]].isna().all(axis=None)
    assert set(summarise(single_seed)["reason"]) == {"one seed has no interval"}
    assert not any("±" in cell for row in written(single_seed)["Scores"].rows for cell in row)


def test_columns_are_fractions() -> None:
    frame = results(constants=("average", "zeros"), fractions=(1.0, 0.5))
    frame["score"] = frame["fraction"] * 0.2 + 0.5 - frame["seed"] * 0.01
    frame.loc[(frame["constants"] == "zeros") & (frame["fraction"] == 0.5), "score"] = 0.4
    tables = written(frame)
    assert tables["Scores"].markdown == (
        "| Constants |             1 |           1/2 |\n"
        "| --------- | ------------: | ------------: |\n"
        "| average   | 0.690 ± 0.028 | 0.590 ± 0.028 |\n"
        "| zeros     | 0.690 ± 0.028 | 0.400 ± 0.013 |\n"
    )
    assert tables["Relative drop"].rows == [
        ["average", "0.0 %", "14.5 ± 0.6 %"],
        ["zeros", "0.0 %", "42.0 ± 2.3 %"],
    ]
    numbers = ["0.690 ± 0.028", "0.500 ('negative')", "0.601 ± 0.015", "yes"]
    assert [row[1:] for row in tables["Baselines"].rows] == [numbers]


def test_what_has_no_baselines_has_no_rows_of_them() -> None:
    """A model's native head."""
    no_baselines = {"always_one_answer": math.nan, "one_answer": "", "word_embeddings": math.nan}
    native = results(constants=("average", "zeros"), fractions=(1.0, 0.0)).assign(**no_baselines)
    assert [*written(native)] == ["Scores", "Relative drop", "Contrasts"]
    mixed = [native, results(tasks=(("sst2", "accuracy"),), fractions=(1.0, 0.0))]
    assert [row[0] for row in written(pandas.concat(mixed))["Baselines"].rows] == ["sst2"]


def test_an_own_metric_that_no_example_changes_beats_nothing() -> None:
    reasons = {
        (3, 20): "does not beat always one answer or word embeddings alone",
        (1, 20): "one seed has no interval",
        (3, 1): "one validation row has no interval",
    }
    for (seeds, rows), reason in reasons.items():
        columns = (dict.fromkeys(range(seeds), values) for values in (7.0, numpy.zeros(rows)))
        same = SeedScores(*columns, math.nan)
        assert not_beaten(same, same, same) == reason


@pytest.mark.parametrize(
    ("one_answer", "words", "reason"),
    [
        (0.5, 0.6, ""),
        (0.79, 0.6, "does not beat always one answer"),
        (0.5, 0.79, "does not beat word embeddings alone"),
        (0.85, 0.9, "does not beat always one answer or word embeddings alone"),
        # Beyond the interval over seeds, 0.775 to 0.825, and not beyond the one over examples as
        # well.
        (0.5, 0.774, "does not beat word embeddings alone"),
    ],
)
def test_what_does_not_beat_its_baselines_by_more_than_its_interval_is_marked(
    one_answer: float, words: float, reason: str
) -> None:
    baseline_scores = {"always_one_answer": one_answer, "word_embeddings": words}
    frame = results(fractions=(1.0, 0.0)).assign(**baseline_scores)
    # The mean is above 0.79, the lower end of its interval is not.
    frame["score"] = [0.79, 0.80, 0.81, 0.70, 0.71, 0.72]
    summary = summarise(frame)
    assert set(summary["reason"]) == {reason}
    assert set(summary["beats_baseline"]) == {not reason}
    for text in (rendered(summary), written(frame)["Relative drop"].markdown):
        assert ("†" in text) == bool(reason)


def test_every_table_names_the_substitute(tmp_path: Path) -> None:
    tasks = (("cola", "matthews"), ("sst2", "accuracy"))
    frame = results(tasks=tasks, constants=("identity",), orders=ORDERS)
    frame.loc[frame["task"] == "cola", "word_embeddings"] = 0.9
    summary = summarise(frame)
    tables = written(frame) | {"orders": order_table(*order_frames(frame), summary)}
    for name in ("Scores", "Relative drop", "orders"):
        for line in tables[name].lines:
            marked = any("†" in cell for cell in line.values())
            assert (marked, line["Constants"]) == (line["Task"] == "cola", "identity"), name
    by_task(summary).save(tmp_path / "table.csv")
    by_task(summary).save(tmp_path / "table.tex")
    table = pandas.read_csv(tmp_path / "table.csv")
    assert set(table["Constants"]) == {"–", "identity"}
    assert table["cola (Matthews)"].str.endswith("†").all()
    assert not table["sst2 (accuracy)"].str.contains("†").any()
    assert (tmp_path / "table.tex").read_text().count(r"\dag{}") == len(table)


def test_a_loss_drops_by_nats_or_ratios() -> None:
    frame = results(tasks=(("words", LOG),), fractions=(1.0, 0.0))
    frame["score"] = frame["fraction"].map({1.0: -5.27, 0.0: -5.9})
    row = summarise(frame).iloc[1]
    assert math.isnan(row["relative_drop"])
    assert row["perplexity_ratio"] == pytest.approx(math.exp(0.63))
    assert row["difference"] == pytest.approx(0.63)
    (line,) = written(frame)["Drop"].lines
    assert re.fullmatch(r"0\.630 ± 0\.\d+ nats \(PPL × 1\.88\)", line["0"])
    (sentence,) = answers(summarise(frame))
    assert "nats (PPL × 1.88)" in sentence
    assert "%" not in sentence


def test_notes_name_actual_fractions_with_the_class_of_f1() -> None:
    frame = results(constants=KINDS)
    assert "1/16 (5.6 %)" in written(frame)["Scores"].headings
    # With 144 heads 1/16 is 9 of them: nothing to say.
    with_more_heads = frame.assign(heads=144, constant_heads=144 * (1 - frame["fraction"]))
    assert "1/16" in written(with_more_heads)["Scores"].headings
    two_tasks = results(tasks=(("mrpc", "f1"), ("cola", "matthews")))
    assert "F1 of 'equivalent'" in written(two_tasks)["Scores"].markdown
    assert "F1 of 'equivalent': mean" in written(results(tasks=(("mrpc", "f1"),)))["Scores"].note


def test_names_cannot_break_out_of_a_table() -> None:
    name = "a|b <img src=x> [c](http://d) `e` *f* _g_ [/red]"
    frame = results(encoders=(name, "other"), constants=KINDS).assign(one_answer=name)
    text = written(frame)["Scores"].markdown + written(frame)["Baselines"].markdown
    assert "\\<img src=x\\> \\[c\\](http\\://d) \\`e\\` \\*f\\* \\_g\\_" in text
    rows = [line for line in text.splitlines() if "average" in line]
    assert len({line.count("|") - line.count("\\|") for line in rows}) == 1
    assert "[/red]" in rendered(summarise(frame), width=400), "it is no markup for Rich"


def test_a_summary_reads_back_as_it_was_written(tmp_path: Path) -> None:
    frame = results(("1", "NA"), (("mrpc", "f1"),)).assign(one_answer="None", positive="NA")
    for written_rows in (frame, frame[frame["seed"] == 0].assign(always_one_answer=math.nan)):
        summary = summarise(written_rows)
        summary.to_csv(tmp_path / "summary.csv", index=False)
        pandas.testing.assert_frame_equal(read_table(tmp_path / "summary.csv"), summary)


def test_no_number_is_broken_on_a_terminal_of_80_columns() -> None:
    assert "all-MiniLM-L6-v2 · reviews · average · λ ascending" in rendered(summarise(results()))
    encoders = ("bert-base-uncased", "roberta-base")
    tasks = (("cola", "matthews"), ("ner", "f1"))
    summary = summarise(results(encoders, tasks, KINDS, ORDERS))
    text = rendered(summary)
    assert max(map(len, text.splitlines())) <= 80
    for point in summary.to_dict("records"):
        assert f"{point['mean']:.3f}" in text
        assert f"±{(point['high'] - point['low']) / 2:.3f}" in text


@pytest.mark.parametrize(
    ("written", "values", "label"),
    [
        (fraction_label, (1.0,), "1"),
        (fraction_label, (0.0625,), "1/16"),
        (fraction_label, (0.0,), "0"),
        (fraction_label, (0.75,), "3/4"),
        (fraction_label, (1 / 3,), "1/3"),
        (fraction_label, (0.37,), "0.37"),
        (score_label, (0.76543, 0.75, 0.78), "0.765 ± 0.015"),
        (score_label, (0.998, 0.97, 1.0), "0.998 (0.970 to 1.000)"),
        (score_label, (0.76543,), "0.765"),
        (score_label, (-0.0001, -0.0102, 0.01), "0.000 ± 0.010"),
        (score_label, (math.nan,), "–"),
        (percent_label, (-0.0001,), "0.0 %"),
        (percent_label, (-0.0123,), "-1.2 %"),
        (percent_label, (math.nan,), "–"),
        (order_label, ("scores:a/heads.tsv",), "scores of a/heads.tsv"),
        (order_label, ("reversed:scores:b/heads.tsv",), "scores of b/heads.tsv, reversed"),
    ],
)
def test_numbers_are_written_as_in_the_paper(
    written: Callable[..., str], values: tuple[object, ...], label: str
) -> None:
    assert written(*values) == label


def test_a_table_in_the_papers_shape(tmp_path: Path) -> None:
    """Originals once, averages first though the study has them last, a contrast beside others."""
    tasks = (("cola_1", "matthews"), ("sst2", "accuracy"))
    kinds = ("identity", "average")
    summary = summarise(results(("a", "b"), tasks, kinds, ORDERS, fractions=(1, 0.5, 0)))
    table = by_task(summary)
    assert table.headings[3:] == ["Input-dependent", "cola_1 (Matthews)", "sst2 (accuracy)"]
    names = [tuple(row[1:4]) for row in table.rows if row[0] == "b"]
    assert names[0] == ("–", "–", "1"), "the original, once"
    assert names[1:4] == [
        ("average", "λ ascending", "1/2"),
        ("average", "random", "1/2"),
        ("average", "–", "0"),
    ]
    assert [name[0] for name in names[4:]] == ["identity"] * 3
    for kind in kinds:
        where = (summary["fraction"] == 0) & (summary["constants"] == kind)
        cell = summary[where & (summary["encoder"] == "b")].iloc[0]
        (row,) = (row for row in table.lines if [*row.values()][:3] == ["b", kind, "–"])
        assert row["cola_1 (Matthews)"].startswith(f"{cell['mean']:.3f} ± ")
        assert cell["contrast_with"] == ("average" if kind == "identity" else "")
        contrast = f"; Δ {cell['contrast']:.3f} ± " in row["cola_1 (Matthews)"]
        assert contrast == (kind == "identity"), "with the average, though it is the study's last"
    assert "how much more average scores" in table.note
    without_average = summarise(results(constants=("zeros", "identity"), fractions=(1, 0.5)))
    assert {*without_average["contrast_with"]} == {"", "zeros"}, "without an average the first"
    assert by_task(summary).heading in rendered(summary)
    table.save(tmp_path / "table.tex")
    lines = (tmp_path / "table.tex").read_text().splitlines()
    assert lines[:2] == [r"\begin{tabular}{lllrrr}", r"\toprule"]
    assert r"cola\_1 (Matthews) & sst2 (accuracy) \\" in lines[2]
    assert all(line.count(" & ") == 5 for line in lines if line.endswith(r"\\"))
    assert r"$\lambda$ ascending & 1/2 & 0." in (tmp_path / "table.tex").read_text()
    table.save(tmp_path / "table.csv")
    assert len(pandas.read_csv(tmp_path / "table.csv")) == len(table.rows)
    two = pandas.concat([summary.assign(study=name) for name in ("first", "second")])
    assert len(by_task(two).rows) == 2 * len(table.rows), "no study hides another"
    with pytest.raises(SpecError, match=r"give a \.csv or \.tex file"):
        table.save(tmp_path / "table.doc")


def scored(score: dict[float, float], **changes: object) -> pandas.DataFrame:
    frame = results(**{"fractions": tuple(score), **changes}).assign(word_embeddings=0.6)
    return frame.assign(score=frame["fraction"].map(score))


def answers_without_intervals(frame: pandas.DataFrame) -> list[str]:
    return [re.sub(r" ± [0-9.]*[0-9]", "", sentence) for sentence in answers(summarise(frame))]


def test_a_sentence_tells_what_every_head_constant_leaves() -> None:
    frame = scored({1.0: 0.8, 0.5: 0.79, 0.0: 0.776})
    assert answers_without_intervals(frame) == [
        "all-MiniLM-L6-v2 on reviews: accuracy 0.800 with every head input-dependent; 0.776 with "
        "every head constant, drop 3.0 %; always 'negative' scores 0.500, word embeddings alone "
        "0.600."
    ]
    frame["score"] += [0.0, 0.01, -0.01, 0.0, 0.0, 0.0, 0.008, 0.002, -0.01]
    assert "drop 3.0 ± 2.5 %;" in answers(summarise(frame))[0]


def test_of_an_original_near_zero_no_share_is_told_but_the_difference() -> None:
    frame = scored({1.0: 0.03, 0.0: 0.001}, tasks=(("cola", "matthews"),))
    frame["score"] += frame["seed"] * 0.005
    frame = frame.assign(always_one_answer=-0.2, word_embeddings=-0.1)
    assert summarise(frame)["relative_drop"].iloc[1:].isna().all()
    (sentence,) = answers_without_intervals(frame)
    assert "0.006 with every head constant, drop 0.029 absolute;" in sentence


def test_kinds_of_constants_share_a_sentence() -> None:
    frame = scored({1.0: 0.8, 0.0: 0.776}, constants=("average", "zeros"))
    frame.loc[(frame["constants"] == "zeros") & (frame["fraction"] == 0), "score"] = 0.6
    (sentence,) = answers_without_intervals(frame)
    assert "0.776 with every head constant (average), drop 3.0 %; 0.600 with" in sentence
    orders = ("lambda", "random")
    (sentence,) = answers_without_intervals(results(orders=orders))
    assert "λ" not in sentence
    (sentence,) = answers_without_intervals(results(orders=orders, fractions=(1.0, 0.0625)))
    assert " at 1/16 (λ ascending), drop " in sentence
    assert " at 1/16 (random), drop " in sentence


NOT_BEATEN = "the original does not beat {} by more than its interval"


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        # A task of which 65 % is one class, on which every probe answers that class.
        (
            scored({1.0: 0.65, 0.0: 0.65}).assign(word_embeddings=0.65),
            NOT_BEATEN.format("word embeddings alone"),
        ),
        (
            scored({1.0: 0.65, 0.0: 0.65}).assign(always_one_answer=0.65),
            NOT_BEATEN.format("always one answer"),
        ),
        (scored({1.0: 0.8, 0.0: 0.8}, seeds=(0,)), "one seed has no interval"),
        (scored({0.0: 0.7}), "the study has no fraction 1"),
    ],
)
def test_what_tells_nothing_is_no_finding(frame: pandas.DataFrame, reason: str) -> None:
    (sentence,) = answers_without_intervals(frame)
    assert "drop" not in sentence
    before, constant, after = sentence.partition(" with every head constant")
    assert constant
    assert f"inconclusive: {reason};" in before
    assert reason not in after


def test_several_encoders_get_their_mean_drops_without_what_tells_nothing() -> None:
    tasks = (("cola", "matthews"), ("sst2", "accuracy"), ("rte", "accuracy"), ("mlm", "accuracy"))
    frame = scored({1.0: 0.8, 0.0: 0.72}, encoders=("a", "b"), tasks=tasks)
    frame.loc[(frame["encoder"] == "b") & (frame["task"] == "sst2"), "word_embeddings"] = 0.9
    frame.loc[frame["task"] == "mlm", "score"] -= 2
    frame.loc[frame["task"] == "rte", "score"] = frame["fraction"].map({1.0: 1.0, 0.0: 0.4})
    assert answers_without_intervals(frame)[-1] == (
        "The mean relative drop over tasks with every head constant (average), and the drop of the "
        "mean score: a 35.0 % and 37.8 %, b 35.0 % and 37.8 %; left out: sst2 (b: inconclusive); "
        "left out: mlm (a drop in percent needs positive scores)."
    )
    assert len(answers_without_intervals(scored({1.0: 0.8, 0.0: 0.72}, tasks=tasks))) == 4, (
        "no mean for one encoder"
    )
