"""Ordinary inputs find the slots that the corpora give the same texts; what does not fit
is said.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

from papa.corpora.batches import MicroBatch, rows_of_like_length
from papa.encoders.reference import load_tokenizer
from papa.errors import DataError
from papa.exporting.placement import ordinary_inputs, write_back
from tests.exporting.conftest import FIRST, SLOTS, Case


@pytest.mark.parametrize("family", ["minilm", "roberta", "electra"])
@pytest.mark.parametrize("kind", ["text", "pair"])
@pytest.mark.parametrize("segment_ids", ["follow", "stay"])
def test_tokens_stand_where_the_corpora_put_them(
    make_case: Callable[..., Case], family: str, kind: str, segment_ids: str
) -> None:
    case = make_case(family, kind, segment_ids=segment_ids)
    inputs = load_tokenizer(case.reference)(*case.texts, padding=True, return_tensors="pt")
    for given in (inputs, {name: inputs[name] for name in ("input_ids", "attention_mask")}):
        placed = case.layout.place(**given)
        expected = case.split.tokens(case.split.rows)
        assert placed.lengths.tolist() == expected.lengths.tolist()
        assert placed.input_ids.tolist() == expected.input_ids.tolist()
        assert placed.slot_ids.tolist() == expected.slot_ids.tolist()
        assert placed.token_type_ids.tolist() == expected.token_type_ids.tolist()
        assert placed.first_lengths.tolist() == case.split.first_lengths.tolist()


@pytest.mark.parametrize("family", ["minilm", "roberta", "electra"])
@pytest.mark.parametrize("kind", ["text", "pair"])
def test_rows_of_a_corpus_become_the_tokenizers_inputs(
    make_case: Callable[..., Case], family: str, kind: str
) -> None:
    case = make_case(family, kind, segment_ids="stay")
    expected = load_tokenizer(case.reference)(*case.texts, padding=True, return_tensors="pt")
    found = ordinary_inputs(case.split, case.split.rows, case.layout)
    for name, tensor in found.items():
        assert torch.equal(tensor, expected[name]), name


def test_states_come_back_where_the_tokens_were(make_case: Callable[..., Case]) -> None:
    case = make_case("electra", "pair")
    inputs = ordinary_inputs(case.split, case.split.rows, case.layout)
    placed = case.layout.place(**inputs)
    rows = [4, 0, 2]
    batch = MicroBatch.of(np.array(rows), placed.take(np.array(rows)))
    assert batch.columns.diff().min() > 0
    assert bool(batch.attention_mask.any(dim=0).all()), "no column without a token"
    restored = torch.full((*inputs["input_ids"].shape, 1), -1.0)
    write_back(batch.input_ids[:, None].float(), batch, restored)
    mask = inputs["attention_mask"].bool()
    assert torch.equal(
        restored[rows, :, 0][mask[rows]].long(), inputs["input_ids"][rows][mask[rows]]
    )
    assert bool((restored[[1, 3]] == -1).all()), "other rows are left alone"
    assert bool((restored[rows][~mask[rows]] == -1).all()), "so are places without a token"


@pytest.mark.parametrize("budget", [1, 40, 10_000])
def test_groups_share_out_all_rows_within_the_budget(
    make_case: Callable[..., Case], budget: int
) -> None:
    case = make_case("electra", "pair")
    placed = case.layout.place(**ordinary_inputs(case.split, case.split.rows, case.layout))
    groups = list(rows_of_like_length(placed.first_lengths, placed.lengths, budget))
    assert sorted(np.concatenate(groups).tolist()) == list(range(len(FIRST)))
    for group in groups:
        assert (
            len(group) == 1 or math.prod(MicroBatch.of(group, placed.take(group)).shape) <= budget
        )
    assert len(groups) == {1: len(FIRST), 10_000: 1}.get(budget, len(groups))


def _ids(*rows: list[int]) -> dict[str, torch.Tensor]:
    longest = max(map(len, rows))
    ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
    return {"input_ids": ids, "attention_mask": mask}


@pytest.mark.parametrize(
    ("kind", "rows", "sentence"),
    [
        ("text", [[2, 7, 3], [2, *[7] * (SLOTS - 1), 3]], f"input 1 has {SLOTS + 1} tokens"),
        ("text", [[2, 7, 3, 8, 3]], "input 0 has a separator inside"),
        ("text", [[2, 7, 3], [7, 8, 3]], "input 1 does not start with [CLS] (id 2)"),
        ("text", [[2, 7, 8]], "end with [SEP] (id 3)"),
        ("text", [[2, 7, 3], []], "input 1 has padding before or between its tokens, or no token"),
        ("pair", [[2, 7, 3]], "input 0 has 0 separators"),
        ("pair", [[2, 7, 3, 8, 3], [2, 7, 3, 8, 3, 9, 3]], "input 1 has 2 separators"),
        ("pair", [[2, *[7] * (SLOTS // 2), 3, 8, 3]], f"hold {SLOTS // 2 - 1} of it"),
        (
            "pair",
            [[2, 7, 3, *[8] * (SLOTS // 2 - 1), 3]],
            f"shorten the second text to {SLOTS // 2 - 2} tokens",
        ),
    ],
)
def test_what_does_not_fit_is_one_sentence(
    make_case: Callable[..., Case], kind: str, rows: list[list[int]], sentence: str
) -> None:
    layout = make_case("electra", kind).layout
    with pytest.raises(DataError) as raised:
        layout.place(**_ids(*rows))
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value)


def test_the_longest_inputs_fit(make_case: Callable[..., Case]) -> None:
    one, two = make_case("electra", "text").layout, make_case("electra", "pair").layout
    placed = one.place(**_ids([2, *[7] * (SLOTS - 2), 3]))
    assert placed.slot_ids.tolist() == list(range(SLOTS))
    placed = two.place(**_ids([2, *[7] * (SLOTS // 2 - 1), 3, *[8] * (SLOTS // 2 - 2), 3]))
    assert placed.slot_ids.tolist() == list(range(SLOTS))
    assert one.longest_input == two.longest_input == SLOTS


def test_padding_on_the_left_is_one_sentence(small: Case) -> None:
    with pytest.raises(DataError, match="input 0 has padding before"):
        small.layout.place(torch.tensor([[0, 2, 7, 3]]), torch.tensor([[0, 1, 1, 1]]))


def test_a_single_row_of_ids_is_one_sentence(small: Case) -> None:
    with pytest.raises(DataError, match="expected \\[batch, tokens\\]"):
        small.layout.place(torch.tensor([2, 7, 3]))
