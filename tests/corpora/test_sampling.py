"""Samples of rows."""

from __future__ import annotations

from papa.corpora.rows import sampled_rows


def test_a_sample_is_drawn_without_repeats_from_everywhere() -> None:
    sample = sampled_rows(1000, 100, 3)
    assert len(set(sample.tolist())) == 100
    assert sample.tolist() == sampled_rows(1000, 100, 3).tolist()
    assert set(sample.tolist()) != set(sampled_rows(1000, 100, 4).tolist())
    assert 300 < sample.mean() < 700, "the first rows would have a mean of 50"


def test_a_smaller_sample_is_the_start_of_a_larger_one() -> None:
    assert sampled_rows(50, 10, 0).tolist() == sampled_rows(50, 20, 0)[:10].tolist()


def test_all_rows_keep_their_order() -> None:
    for rows in (None, 5, 9):
        assert sampled_rows(5, rows, 0).tolist() == list(range(5))
