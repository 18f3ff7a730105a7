"""The summary of results: intervals of drops for a statement on all lines."""

from __future__ import annotations

import numpy as np
import pandas
import pytest

from papa.scores.summary import LINE, drops_of_all_lines, summarise


def results(lines: int) -> pandas.DataFrame:
    """Results of three seeds on 400 examples, of lines that lose about a tenth of the answers."""
    rows = []
    for line in range(lines):
        numbers = np.random.default_rng(line)
        for constant_heads, share in ((0, 0.9), (4, 0.8)):
            for seed in range(3):
                answers = numbers.random(400) < share
                rows.append(
                    {
                        **dict(
                            zip(LINE, (f"encoder {line}", "task", "average", "lambda"), strict=True)
                        ),
                        "fraction": 1 - constant_heads / 4,
                        "constant_heads": constant_heads,
                        "heads": 4,
                        "seed": seed,
                        "metric": "accuracy",
                        "positive": "",
                        "score": answers.mean(),
                        "influence": (answers - answers.mean()) / 399,
                        "always_one_answer": 0.5,
                        "one_answer": "yes",
                        "one_answer_influence": np.zeros(400),
                        "word_embeddings": np.nan,
                        "word_embeddings_influence": np.zeros(0),
                    }
                )
    return pandas.DataFrame(rows)


def drop_width(summary: pandas.DataFrame) -> float:
    """The width of the interval of the first line's drop."""
    row = summary[summary["constant_heads"] > 0].iloc[0]
    return float(row["drop_high"] - row["drop_low"])


@pytest.mark.parametrize("lines", [1, 2])
def test_up_to_two_lines_keep_intervals_of_95_percent(lines: int) -> None:
    frame = results(lines)
    assert drop_width(drops_of_all_lines(frame)) == pytest.approx(drop_width(summarise(frame)))


def test_drops_of_ten_lines_have_intervals_of_99_percent() -> None:
    frame = results(10)
    expected = drop_width(summarise(frame, drop_confidence=0.99))
    assert drop_width(drops_of_all_lines(frame)) == pytest.approx(expected)
    assert expected > 1.2 * drop_width(summarise(frame))


def test_scores_keep_their_intervals_whatever_the_number_of_lines() -> None:
    frame = results(10)
    columns = ["mean", "low", "high"]
    pandas.testing.assert_frame_equal(drops_of_all_lines(frame)[columns], summarise(frame)[columns])
