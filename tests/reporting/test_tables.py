"""The summary's numbers, how they and names are written, and those that somebody else published."""

import io
import math
import re
from collections.abc import Callable
from pathlib import Path

import numpy
import pandas
import pytest
from rich.console import Console, RenderableType

from papa.errors import SpecError
from papa.library.measurement import Tables
from papa.reporting.score_figures import scores_figure
from papa.reporting.tables import by_task, score_tables, summary_table
from papa.reporting.wording import (
    WrittenTable,
    effect_label,
    fraction_label,
    order_label,
    percent_label,
    score_label,
)
from papa.scores.summary import read_table, summarise
from papa.spec.columns import LINE
from tests.reporting.studies import FRACTIONS, LOG, results

KINDS = ("average", "identity", "zeros")
ORDERS = ("lambda", "random")


def printed(table: RenderableType, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(table)
    return console.file.getvalue()  # type: ignore[attr-defined]


def rendered(summary: pandas.DataFrame, width: int = 80) -> str:
    return printed(summary_table(summary), width)


def written(frame: pandas.DataFrame) -> dict[str, WrittenTable]:
    """The tables by their headings, without the metric."""
    tables = score_tables(summarise(frame))
    return {table.heading.partition(" (")[0]: table for table in tables}


@pytest.mark.parametrize(
    ("positive", "metrics"),
    [({"a": "yes"}, ["F1 of 'yes'"]), ({"a": "yes", "b": "no"}, ["F1 of 'yes'", "F1 of 'no'"])],
    ids=["of one class", "of two classes"],
)
def test_printed_tables_of_scores_name_the_metric_of_each_task(
    positive: dict[str, str], metrics: list[str]
) -> None:
    frame = results(tasks=[(task, "f1") for task in positive])
    frame["positive"] = frame["task"].map(positive)
    scores, *_ = score_tables(summarise(frame))
    for text in (scores.titled_markdown, rendered(summarise(frame), width=120)):
        assert all(metric in text for metric in metrics)


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


def test_what_has_no_baselines_has_no_rows_of_them() -> None:
    """A model's native head."""
    native = results(constants=("average", "zeros"), fractions=(1.0, 0.0)).assign(
        always_one_answer=math.nan, one_answer="", word_embeddings=math.nan
    )
    assert [*written(native)] == ["Scores", "Relative drop", "Contrasts"]
    mixed = [native, results(tasks=(("sst2", "accuracy"),), fractions=(1.0, 0.0))]
    assert [row[0] for row in written(pandas.concat(mixed))["Baselines"].rows] == ["sst2"]


@pytest.mark.parametrize(
    ("answer", "words", "reason"),
    [
        (0.5, 0.6, ""),
        (0.79, 0.6, "does not beat the best single answer"),
        (0.5, 0.79, "does not beat word embeddings alone"),
        (0.85, 0.9, "does not beat the best single answer or word embeddings alone"),
        # Beyond the interval over seeds, 0.775 to 0.825, and not beyond the one over examples as
        # well.
        (0.5, 0.774, "does not beat word embeddings alone"),
    ],
)
def test_what_does_not_beat_its_baselines_by_more_than_its_interval_is_marked(
    answer: float, words: float, reason: str
) -> None:
    frame = results(fractions=(1.0, 0.0)).assign(always_one_answer=answer, word_embeddings=words)
    # The mean is above 0.79, the lower end of its interval is not.
    frame["score"] = [0.79, 0.80, 0.81, 0.70, 0.71, 0.72]
    summary = summarise(frame)
    assert set(summary["reason"]) == {reason}
    assert set(summary["beats_baseline"]) == {not reason}
    assert ("†" in rendered(summary)) == bool(reason)
    for table in score_tables(summary):
        assert ("†" in table.markdown) == ("†" in table.titled_markdown.splitlines()[-1])


def test_fractions_of_equal_whole_heads_are_shown_once() -> None:
    frame = results(orders=ORDERS).assign(heads=8)
    frame["constant_heads"] = ((1 - frame["fraction"]) * 8).round().astype(int)
    summary = summarise(frame)
    scores, *_ = score_tables(summary)
    assert scores.headings[2:] == ["1", "1/2", "1/8", "0"]
    assert "1/16" in scores.note
    assert {row["Input-dependent"] for row in by_task(summary).records} == {"1", "1/2", "1/8", "0"}
    assert set(scores_figure(summary).data["heads"]) == {"1", "1/2", "1/8", "0"}


def test_a_loss_drops_by_nats_or_ratios() -> None:
    frame = results(tasks=(("words", LOG),), fractions=(1.0, 0.0))
    frame["score"] = frame["fraction"].map({1.0: -5.27, 0.0: -5.9})
    row = summarise(frame).iloc[1]
    assert math.isnan(row["relative_drop"])
    assert row["perplexity_ratio"] == pytest.approx(math.exp(0.63))
    assert row["difference"] == pytest.approx(0.63)
    (line,) = written(frame)["Drop"].records
    assert re.fullmatch(r"0\.630 ± 0\.\d+ nats \(PPL × 1\.88\)", line["0"])


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


@pytest.mark.parametrize(
    ("mean", "half", "label"),
    [
        (0.0728, 0.00412, "0.0728 ± 0.0041"),
        (0.2521, 0.0999, "0.25 ± 0.10"),
        (-0.0000026, 0.0000052, "-0.0000026 ± 0.0000052"),
        (2.06e-8, 4e-9, "2.1e-08 ± 4.0e-09"),
        (12.34, 23.4, "12 ± 23"),
        (0.01234, math.nan, "0.0123"),
        (0.0, 0.0, "0"),
    ],
)
def test_digits_of_an_effect_follow_its_interval(mean: float, half: float, label: str) -> None:
    row = {"joint": mean, "joint_low": mean - half, "joint_high": mean + half}
    assert effect_label("joint", row) == label


@pytest.mark.parametrize(
    ("written", "values", "label"),
    [
        (fraction_label, (0.0625,), "1/16"),
        (fraction_label, (1 / 3,), "1/3"),
        (fraction_label, (0.37,), "0.37"),
        (score_label, (0.76543, 0.75, 0.78), "0.765 ± 0.015"),
        (score_label, (0.998, 0.97, 1.0), "0.998 (0.970 to 1.000)"),
        (score_label, (-0.0001, -0.0102, 0.01), "0.000 ± 0.010"),
        (score_label, (math.nan,), "–"),
        (percent_label, (-0.0123,), "-1.2 %"),
        (order_label, ("reversed:scores:b/heads.tsv",), "scores of b/heads.tsv, reversed"),
    ],
)
def test_number_forms(written: Callable[..., str], values: tuple[object, ...], label: str) -> None:
    assert written(*values) == label


def test_a_table_by_task_has_each_original_once() -> None:
    """Averages first, though the study has them last, and a contrast beside the others."""
    tasks = (("cola_1", "matthews"), ("sst2", "accuracy"))
    kinds = ("identity", "average")
    table = by_task(summarise(results(("a", "b"), tasks, kinds, ORDERS, fractions=(1, 0.5, 0))))
    assert table.headings[4:] == ["cola_1 (Matthews)", "sst2 (accuracy)"]
    rows = [row for row in table.rows if row[0] == "b"]
    assert [tuple(row[1:4]) for row in rows] == [
        ("–", "–", "1"),
        ("average", "smallest λ first", "1/2"),
        ("average", "random", "1/2"),
        ("average", "–", "0"),
        ("identity", "smallest λ first", "1/2"),
        ("identity", "random", "1/2"),
        ("identity", "–", "0"),
    ]
    assert ["Δ" in row[4] for row in rows] == [False] * 4 + [True] * 3


@pytest.mark.parametrize("encoder", ["bert", "7b-model", "1"])
def test_names_that_look_like_numbers_are_aligned_as_names(encoder: str) -> None:
    table = WrittenTable("Scores", [{"Encoder": encoder, "Task": "2", "1/2": "0.5 ± 0.1"}])
    _, rule, _ = table.markdown.splitlines()
    assert [cell.strip().endswith(":") for cell in rule.strip("|").split("|")] == [
        False,
        False,
        True,
    ]
    assert table.terminal().columns[0].header == "Encoder, Task"


def test_a_narrow_terminal_shows_every_name_and_number() -> None:
    shares = {f"1/{number}": "0.500 (0.123 to 0.987)" for number in range(2, 8)}
    text = printed(WrittenTable("Scores", [{"Task": "nearest", **shares}]).terminal())
    assert [text.count(number) for number in ("0.500", "(0.123", "0.987)")] == [6, 6, 6]
    assert "nearest" in text


def test_a_table_by_task_is_saved_as_csv_or_latex(tmp_path: Path) -> None:
    table = by_task(summarise(results(tasks=(("cola_1", "matthews"),), orders=ORDERS)))
    tables = Tables((table,))
    tables.save(tmp_path / "table.csv")
    assert len(pandas.read_csv(tmp_path / "table.csv")) == len(table.rows)
    tables.save(tmp_path / "table.tex")
    text = (tmp_path / "table.tex").read_text()
    assert r"cola\_1 (Matthews) \\" in text
    assert r"smallest $\lambda$ first" in text
    with pytest.raises(SpecError, match=r"\.csv"):
        tables.save(tmp_path / "table.doc")
    with pytest.raises(SpecError, match="2 tables"):
        Tables((table, table)).save(tmp_path / "table.csv")
