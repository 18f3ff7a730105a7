"""The joint effect of a set of heads beside the sum of its single effects, with planted pairs."""

from copy import deepcopy
from functools import partial
from itertools import combinations

import numpy as np
import pandas
import pytest
import scipy.stats
import torch
from transformers import BertConfig, BertForSequenceClassification, PreTrainedModel

import papa
from papa.ranking.orders import has_joint_effects
from papa.scores.p_values import holm
from papa.scores.skewness import p_values_of_skewed
from tests.make import SIZES

COPY = 1
"""A head with the weights of head 0: each does the job of both."""
SILENT = 2
"""A head that writes nothing."""
PAIR = [(0, 0), (0, COPY)]


joint_effects = partial(papa.joint_effects, substitute="zeros", progress=False)
quick_measure = partial(papa.measure, probe_seeds=[0], progress=False)


def batches(seed: int, texts: int = 24) -> list[dict[str, torch.Tensor]]:
    ids = torch.randint(1, 50, (texts, 10), generator=torch.Generator().manual_seed(seed))
    return [{"input_ids": ids, "attention_mask": torch.ones_like(ids)}]


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
    sets = [PAIR, [(0, 0), (0, SILENT)]]
    return joint_effects(redundant, batches(1), head_sets=sets).effects


def test_a_redundant_pair_costs_more_than_its_heads_alone(effects: pandas.DataFrame) -> None:
    pair = effects.iloc[0]
    assert pair["joint"] > 10 * pair["single_sum"]
    assert pair["redundancy_low"] > 0


def test_a_head_that_writes_nothing_adds_nothing(effects: pandas.DataFrame) -> None:
    pair = effects.iloc[1]
    assert pair["joint"] == pytest.approx(pair["single_sum"], abs=1e-6)
    assert pair["redundancy"] == pytest.approx(0, abs=1e-6)


def test_a_joint_effect_is_that_of_the_set_replaced_by_hand(
    redundant: PreTrainedModel, effects: pandas.DataFrame
) -> None:
    for heads, joint in zip(([0, COPY], [0, SILENT]), effects["joint"], strict=True):
        by_hand = papa.fidelity(redundant, batches(1), heads={0: heads}, substitute="zeros")
        assert joint == pytest.approx(by_hand["value"]["divergence"], abs=1e-6)


def test_single_effects_are_those_of_head_scores(redundant: PreTrainedModel) -> None:
    texts = batches(2)
    scores = papa.head_scores(redundant, texts, method="effect", substitute="zeros", progress=False)
    alone = joint_effects(redundant, texts, head_sets=[[(0, head)] for head in range(4)]).effects
    for column, expected in (("joint", "score"), ("joint_low", "low"), ("joint_high", "high")):
        assert alone[column].tolist() == pytest.approx(scores[expected].tolist(), abs=1e-6)


def measured(model: PreTrainedModel) -> papa.Measurement:
    """A measurement by the effect of single heads against zeros, on 64 texts."""
    return quick_measure(
        model, batches(3, texts=64), substitutes=["zeros"], orders=["effect"], keep=[1, 0.5, 0]
    )


@pytest.fixture(scope="module")
def of_copies(redundant: PreTrainedModel) -> papa.Measurement:
    return measured(redundant)


@pytest.fixture(scope="module")
def of_one_head(redundant: PreTrainedModel) -> papa.Measurement:
    """Of the model without the copy: head 0 does the job by itself."""
    model = deepcopy(redundant)
    width = 32 // 4
    output = model.bert.encoder.layer[0].attention.output.dense.weight
    output.data[:, width : 2 * width] = 0
    return measured(model)


def effects_of(measurement: papa.Measurement) -> pandas.DataFrame:
    assert measurement.joint_effects is not None
    return measurement.joint_effects.effects


def test_measure_finds_redundancy_where_there_is_one(
    of_copies: papa.Measurement, of_one_head: papa.Measurement
) -> None:
    copies = effects_of(of_copies)
    assert copies["count"].tolist() == [2, 4] + [2] * 6, "one head alone is no set"
    assert copies["redundancy_low"][1] > 0
    single = effects_of(of_one_head)
    assert single["joint"][1] > 0.01
    assert single["redundancy"].to_numpy() == pytest.approx(0, abs=1e-6)


def test_only_the_redundant_pair_is_named(
    of_copies: papa.Measurement, of_one_head: papa.Measurement
) -> None:
    pairs = [f"L0H{first} + L0H{second}" for first, second in combinations(range(4), 2)]
    assert effects_of(of_copies)["pair"].tolist() == ["", "", *pairs]
    for measurement, redundant in ((of_copies, {f"L0H0 + L0H{COPY}"}), (of_one_head, set())):
        assert measurement.joint_effects is not None
        assert {pair for pair in pairs if pair in " ".join(measurement.answers)} == redundant
        drawn = {*measurement.joint_effects.plot().data["set"]}
        assert drawn == {"2 heads", "4 heads"} | redundant


def test_joint_effects_can_be_left_out(redundant: PreTrainedModel) -> None:
    measurement = quick_measure(redundant, batches(3), keep=[1, 0.5], joint_effects=False)
    assert measurement.joint_effects is None
    assert set(measurement.head_scores["method"]) == {"effect"}


def test_p_values_are_of_the_adjusted_test_over_texts(redundant: PreTrainedModel) -> None:
    """Of texts of one length, whose mean is the mean over texts."""
    (batch,) = batches(1)
    (pair,) = joint_effects(redundant, [batch], head_sets=[PAIR]).effects.to_dict("records")
    by_text = [
        joint_effects(redundant, [{"input_ids": text[None]}], head_sets=[PAIR]).effects
        for text in batch["input_ids"]
    ]
    lost = np.concatenate([effects["redundancy"] for effects in by_text])
    student = scipy.stats.ttest_1samp(lost, 0)
    expected = p_values_of_skewed(np.array([student.statistic]), (lost - lost.mean())[None])
    assert pair["p"] == pytest.approx(expected[0], rel=1e-3)
    opposite = p_values_of_skewed(np.array([student.statistic]), (lost.mean() - lost)[None])
    assert pair["p"] != pytest.approx(opposite[0], rel=1e-2), "negative control"


def test_a_set_without_redundancy_in_any_text_has_no_p_value(effects: pandas.DataFrame) -> None:
    assert effects["p"].isna().tolist() == [False, True]


@pytest.fixture(scope="module")
def of_20_heads() -> papa.Measurement:
    """Of a random model of five layers."""
    torch.manual_seed(1)
    config = BertConfig.from_dict(
        SIZES | {"vocab_size": 50, "num_hidden_layers": 5, "num_labels": 3}
    )
    return measured(BertForSequenceClassification(config).eval())


def test_pairs_are_of_the_16_heads_of_least_effect(of_20_heads: papa.Measurement) -> None:
    least = of_20_heads.head_scores.nsmallest(16, "score")
    heads = sorted(zip(least["layer"], least["head"], strict=True))
    names = [f"L{layer}H{head}" for layer, head in heads]
    expected = [f"{first} + {second}" for first, second in combinations(names, 2)]
    assert len(expected) == 120
    assert effects_of(of_20_heads)["pair"].tolist() == ["", "", *expected]


def test_p_values_of_pairs_are_corrected_for_their_number(of_20_heads: papa.Measurement) -> None:
    effects = effects_of(of_20_heads)
    pairs = effects[effects["pair"] != ""]
    assert pairs["p"].nunique() > 100
    assert pairs["p_holm"].tolist() == pytest.approx(holm(pairs["p"].tolist()))
    assert effects.loc[effects["pair"] == "", "p_holm"].isna().all()


def test_another_order_has_no_joint_effects(redundant: PreTrainedModel) -> None:
    measurement = quick_measure(redundant, batches(3), orders=["first_to_last"], keep=[0.5])
    assert measurement.joint_effects is None


@pytest.mark.parametrize("head_sets", [[], [[]], [[(0, 4)]]], ids=["none", "empty", "no head"])
def test_sets_without_heads_of_the_model_are_refused(
    head_sets: list[list[tuple[int, int]]], redundant: PreTrainedModel
) -> None:
    with pytest.raises(papa.errors.SpecError, match="head"):
        joint_effects(redundant, batches(1), head_sets=head_sets)


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
