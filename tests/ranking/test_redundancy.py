"""The joint effect of a set of heads beside the sum of its single effects, with planted pairs."""

from copy import deepcopy
from functools import partial

import pandas
import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification, PreTrainedModel

import papa
from papa.ranking.orders import has_joint_effects
from tests.make import SIZES

COPY = 1
"""A head with the weights of head 0: each does the job of both."""
SILENT = 2
"""A head that writes nothing."""


joint_effects = partial(papa.joint_effects, substitute="zeros", progress=False)
quick_measure = partial(papa.measure, probe_seeds=[0], progress=False)


@pytest.fixture(scope="module")
def redundant() -> BertForSequenceClassification:
    """Heads 0 and 1 are large copies, so that one does for both; other heads write nothing."""
    torch.manual_seed(0)
    shape = {"vocab_size": 50, "num_hidden_layers": 1, "num_labels": 3}
    config = BertConfig.from_dict(SIZES | shape)
    model = BertForSequenceClassification(config).eval()
    attention = model.bert.encoder.layer[0].attention
    width = 32 // 4
    with torch.no_grad():
        for name in ("query", "key", "value"):
            weight = attention.get_submodule(f"self.{name}").weight
            weight[width : 2 * width] = weight[:width]
        output = attention.output.dense.weight
        output[:, :width] *= 100
        output[:, width : 2 * width] = output[:, :width]
        output[:, 2 * width :] = 0
    return model


@pytest.fixture(scope="module")
def effects(redundant: PreTrainedModel) -> pandas.DataFrame:
    """The effects of the redundant pair, and of a pair with a head that writes nothing."""
    ids = torch.randint(1, 50, (24, 10), generator=torch.Generator().manual_seed(1))
    batches = [{"input_ids": ids, "attention_mask": torch.ones_like(ids)}]
    sets = [[(0, 0), (0, COPY)], [(0, 0), (0, SILENT)]]
    return joint_effects(redundant, batches, head_sets=sets).effects


def test_a_redundant_pair_costs_more_than_its_heads_alone(effects: pandas.DataFrame) -> None:
    pair = effects.iloc[0]
    assert pair["joint"] > 10 * pair["single_sum"]
    assert pair["redundancy_low"] > 0


def test_a_head_that_writes_nothing_adds_nothing(effects: pandas.DataFrame) -> None:
    pair = effects.iloc[1]
    assert pair["joint"] == pytest.approx(pair["single_sum"], abs=1e-6)
    assert pair["redundancy"] == pytest.approx(0, abs=1e-6)


def test_single_effects_are_those_of_head_scores(redundant: PreTrainedModel) -> None:
    ids = torch.randint(1, 50, (24, 10), generator=torch.Generator().manual_seed(2))
    batches = [{"input_ids": ids, "attention_mask": torch.ones_like(ids)}]
    scores = papa.head_scores(
        redundant, batches, method="effect", substitute="zeros", progress=False
    )
    alone = joint_effects(redundant, batches, head_sets=[[(0, head)] for head in range(4)]).effects
    for column, expected in (("joint", "score"), ("joint_low", "low"), ("joint_high", "high")):
        assert alone[column].tolist() == pytest.approx(scores[expected].tolist(), abs=1e-6)


@pytest.mark.parametrize("is_redundant", [True, False], ids=["copies", "one head"])
def test_measure_finds_redundancy(redundant: PreTrainedModel, is_redundant: bool) -> None:
    model = deepcopy(redundant)
    if not is_redundant:
        # Without its copy, head 0 does the job by itself.
        width = 32 // 4
        output = model.bert.encoder.layer[0].attention.output.dense.weight
        output.data[:, width : 2 * width] = 0
    ids = torch.randint(1, 50, (64, 10), generator=torch.Generator().manual_seed(3))
    batches = [{"input_ids": ids, "attention_mask": torch.ones_like(ids)}]
    measurement = quick_measure(
        model, batches, substitutes=["zeros"], orders=["effect"], keep=[1, 0.5, 0]
    )
    assert measurement.joint_effects is not None
    effects = measurement.joint_effects.effects
    assert effects["count"].tolist() == [2, 4], "one head alone is no set"
    all_heads = effects.iloc[-1]
    assert (all_heads["redundancy_low"] > 0) == is_redundant
    if not is_redundant:
        assert all_heads["joint"] > 0.01
        assert all_heads["redundancy"] == pytest.approx(0, abs=1e-6)
    assert measurement.joint_effects.plot().data["set"].nunique() == 2


def test_another_order_has_no_joint_effects(redundant: PreTrainedModel) -> None:
    data = [{"input_ids": torch.arange(1, 33).reshape(4, 8)}]
    measurement = quick_measure(redundant, data, orders=["first_to_last"], keep=[0.5])
    assert measurement.joint_effects is None


@pytest.mark.parametrize("head_sets", [[], [[]], [[(0, 4)]]], ids=["none", "empty", "no head"])
def test_sets_without_heads_of_the_model_are_refused(
    head_sets: list[list[tuple[int, int]]], redundant: PreTrainedModel
) -> None:
    batches = [{"input_ids": torch.ones(2, 4, dtype=torch.int64)}]
    with pytest.raises(papa.errors.SpecError, match="head"):
        papa.joint_effects(redundant, batches, head_sets=head_sets, progress=False)


@pytest.mark.parametrize(
    ("keep", "units", "expected"),
    [
        ([1, 0.5], 4, True),
        ([1, 0.75], 4, False),
        ([1], 4, False),
        ([0], 512, True),
        ([0], 513, False),
    ],
)
def test_sets_of_few_units_are_compared(keep: list[float], units: int, expected: bool) -> None:
    assert has_joint_effects(keep, units) == expected
