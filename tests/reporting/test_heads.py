"""The table of heads, and matrices as images that carry their values."""

from __future__ import annotations

import io
import zlib
from dataclasses import replace

import numpy
import pytest
import torch
from PIL import Image

from papa.ranking.seeds import HeadScores
from papa.reporting.figures.matrices import MOST_ENTRIES, TOP, UNSEEN, heat_maps, level_image
from papa.reporting.heads import NO_PATTERN
from papa.reporting.page import browsed
from tests.reporting.heads import heads_of
from tests.reporting.studies import results, study

WITHOUT_SCORES = ["pattern", "place, first layer to last", "constant at, first layer to last"]


def test_a_row_says_place_and_the_fractions_at_which_the_head_is_constant() -> None:
    table = heads_of().table((1.0, 0.5, 0.0)).set_index(["layer", "head"])
    assert list(table.index) == [(layer, head) for layer in range(2) for head in range(3)]
    # λ falls with the number of the head, so the last is the first to become constant.
    assert table["place, λ ascending"].tolist() == [6, 5, 4, 3, 2, 1]
    assert table["constant at, λ ascending"].tolist() == 3 * ["0"] + 3 * ["1/2, 0"]
    assert table["constant at, first layer to last"].tolist() == 3 * ["1/2, 0"] + 3 * ["0"]
    assert table.loc[(0, 0), "lambda"] == pytest.approx(0.9)
    # Two seeds 0.01 apart: half of their distance times t of one degree of freedom, 12.706.
    ends = table.loc[(0, 0), ["lambda from", "lambda to"]].tolist()
    assert ends == pytest.approx([0.9 - 0.06353, 0.9 + 0.06353], abs=1e-5)


def test_patterns_are_named_as_they_are_measured() -> None:
    table = heads_of(slots=32, ranked=False).table((1.0, 0.0))
    assert list(table.columns[2:]) == WITHOUT_SCORES
    assert table["pattern"].tolist()[:5] == [
        "diagonal 0, concentrated",
        "[CLS], concentrated",
        "[SEP], concentrated",
        "diagonal +1, concentrated",
        NO_PATTERN,
    ]


def test_every_score_has_a_column_and_its_interval_where_it_has_one() -> None:
    effect = numpy.arange(6.0).reshape(2, 3) / 1000
    computed = {"effect": HeadScores(numpy.stack([effect - 0.0001, effect + 0.0001]))}
    heads = replace(
        heads_of(ranked=False), computed=computed, given={"duo.tsv": effect * 1e6 - 2000}
    )
    table = heads.table((1.0, 0.0))
    scores = ["duo.tsv", "effect", "effect from", "effect to"]
    assert list(table.columns) == ["layer", "head", *scores, *WITHOUT_SCORES]
    assert table["effect"].tolist() == pytest.approx(effect.flatten().tolist())
    assert (table["effect from"] < table["effect"]).all()
    (maps,) = heat_maps([heads])
    page = browsed(heads, maps, study(results(fractions=(1.0, 0.0))))
    assert page["headings"][2:5] == ["duo.tsv", "effect", "Pattern"]
    assert page["rows"][5][2:4] == ["3000", "0.005000 (0.003729 to 0.006271)"]
    tile = page["layers"][1][2]
    assert (tile["layer"], tile["head"], tile["score"], tile["short"]) == (1, 2, "3000", "3000")
    assert tile["facts"]["effect"] == "0.005000 (0.003729 to 0.006271)"


def test_levels_give_the_values_back_within_the_stated_error() -> None:
    heads = heads_of(slots=16)
    (maps,) = heat_maps([heads])
    for layer in range(2):
        for head in range(3):
            largest = maps.largest[layer, head]
            values = largest * (maps.levels[layer, head] / TOP) ** 2
            assert numpy.abs(values - heads.matrices[layer, head].numpy()).max() <= 0.004 * largest


def test_a_png_holds_a_byte_for_every_entry_after_a_filter_byte_of_zero() -> None:
    """The page's script reads values from these bytes without undoing any filter."""
    (maps,) = heat_maps([heads_of(slots=64, unseen=20)])
    data = level_image(maps.levels[1, 2])
    assert Image.open(io.BytesIO(data)).mode == "P"
    at, compressed = 8, b""
    while at < len(data):
        length = int.from_bytes(data[at : at + 4])
        if data[at + 4 : at + 8] == b"IDAT":
            compressed += data[at + 8 : at + 8 + length]
        at += 12 + length
    rows = numpy.frombuffer(zlib.decompress(compressed), dtype=numpy.uint8).reshape(44, 45)
    assert (rows[:, 0] == 0).all()
    assert (rows[:, 1:] == maps.levels[1, 2]).all()


def test_slots_never_seen_are_left_out_and_a_pair_never_seen_is_no_zero() -> None:
    heads = heads_of(slots=8, unseen=3)
    heads.seen[2, 3] = False
    (maps,) = heat_maps([heads])
    assert maps.labels == ["[CLS]", "1", "2", "3", "[SEP]"]
    assert (maps.levels[:, :, 2, 3] == UNSEEN).all()
    assert (maps.levels == UNSEEN).sum() == 6


def test_where_there_are_too_many_neighbours_share_a_row_and_special_slots_do_not() -> None:
    sets = [
        heads_of(task=task, layers=12, heads=12, slots=128, special=(0, 64, 127))
        for task in ("a", "b", "c")
    ]
    maps = heat_maps(sets)
    assert sum(heat_map.levels.size for heat_map in maps) <= MOST_ENTRIES
    for heat_map in maps:
        assert [heat_map.labels[row] for row in heat_map.special] == ["[CLS]", "[SEP]", "[SEP]"]
        alone = [heat_map.ranges[row] for row in heat_map.special]
        assert all(end == start + 1 for start, end in alone)
        assert {end - start for start, end in heat_map.ranges} == {1, 2}
        covered = [slot for start, end in heat_map.ranges for slot in range(start, end)]
        assert covered == list(range(128))


def test_a_shared_row_is_the_mean_of_what_was_seen() -> None:
    sets = [heads_of(task=task, layers=12, heads=12, slots=128) for task in "abc"]
    sets[0].seen[1, 4] = False
    maps = heat_maps(sets)[0]
    row, column = maps.ranges.index((1, 3)), maps.ranges.index((3, 5))
    entries = sets[0].matrices[4, 0, 1:3, 3:5]
    expected = entries[sets[0].seen[1:3, 3:5]].mean()
    found = maps.largest[4, 0] * (maps.levels[4, 0, row, column] / TOP) ** 2
    assert found == pytest.approx(float(expected), abs=0.004 * float(maps.largest[4, 0]))
    assert not torch.isclose(expected, entries.mean()), "the entry never seen does not count"
