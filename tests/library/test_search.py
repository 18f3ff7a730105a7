"""The heads that an in-memory model can do without, searched in the order of scores."""

import math
from collections.abc import Callable, Mapping
from functools import partial

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification, PreTrainedModel
from transformers.utils import ModelOutput

import papa
from tests.make import SIZES

NEEDED = (0, 0)
Batches = list[dict[str, torch.Tensor]]
Search = Callable[..., papa.HeadSearch]


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    """A model whose head 0 of layer 0 writes much, and whose other heads write little."""
    torch.manual_seed(0)
    sizes = {"num_hidden_layers": 2, "intermediate_size": 32, "initializer_range": 0.3}
    config = BertConfig.from_dict(SIZES | sizes | {"vocab_size": 50, "num_labels": 3})
    model = BertForSequenceClassification(config).eval()
    with torch.no_grad():
        for layer in model.bert.encoder.layer:
            layer.attention.output.dense.weight *= 1e-3
        model.bert.encoder.layer[0].attention.output.dense.weight[:, :8] *= 1e5
    return model


@pytest.fixture(scope="module")
def batches() -> Batches:
    ids = torch.randint(1, 50, (96, 10), generator=torch.Generator().manual_seed(1))
    return [{"input_ids": ids, "attention_mask": torch.ones_like(ids)}]


@pytest.fixture(scope="module")
def search(model: PreTrainedModel, batches: Batches) -> Search:
    scores = papa.head_scores(
        model, batches, method="effect", substitute="zeros", ranking_seeds=[0], progress=False
    )
    return partial(
        papa.search_heads, model, batches, scores=scores, substitute="zeros", progress=False
    )


def confidence(outputs: ModelOutput, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    return outputs.logits.softmax(-1).amax(-1)


def test_all_but_the_needed_head_are_found(search: Search) -> None:
    heads = search(max_effect=0.01).heads
    assert len(heads) == 7
    assert NEEDED not in heads


def test_a_limit_below_every_effect_finds_no_head(search: Search) -> None:
    assert search(max_effect=1e-12).heads == ()


def test_effects_are_those_of_joint_effects(
    model: PreTrainedModel, batches: Batches, search: Search
) -> None:
    # A limit between the bounds of all eight heads: their effect takes all texts.
    trials_below = search(max_effect=0.01).trials
    every_head = [(layer, head) for layer in range(2) for head in range(4)]
    joint = papa.joint_effects(
        model, batches, head_sets=[every_head], substitute="zeros", progress=False
    ).effects
    limit = float(joint["joint"].iloc[0])
    trials = search(max_effect=limit).trials
    (last,) = trials[trials["constant_heads"] == 8].to_dict("records")
    assert last["verdict"] == "undecided"
    assert last["texts"] == 96
    assert last["effect"] == pytest.approx(limit, rel=1e-4)
    assert trials_below["effect"].max() > 0.01


def test_a_score_may_be_limited(search: Search) -> None:
    trials = search(max_effect=0.02, score=confidence).trials
    assert {"within", "beyond"} <= {*trials["verdict"]}


@pytest.mark.parametrize("max_effect", [0.0, -1.0, math.nan, math.inf])
def test_a_limit_that_is_no_positive_number_is_named(search: Search, max_effect: float) -> None:
    with pytest.raises(papa.PapaError, match="max_effect"):
        search(max_effect=max_effect)


def test_one_text_has_no_bounds(model: PreTrainedModel, batches: Batches) -> None:
    one = [{name: values[:1] for name, values in batches[0].items()}]
    with pytest.raises(papa.errors.DataError, match="1 text"):
        papa.search_heads(model, one, scores=torch.rand(2, 4), max_effect=0.1, progress=False)


@pytest.mark.parametrize("shape", [(3, 4), (2, 2), (1, 4)])
def test_scores_of_another_shape_are_refused(search: Search, shape: tuple[int, int]) -> None:
    with pytest.raises(papa.PapaError, match="2 layers of 4 heads"):
        search(scores=torch.rand(shape), max_effect=0.1)


class CountedPasses:
    """How often a model was called in a block."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self.count = 0

    def __enter__(self) -> "CountedPasses":
        self.hook = self.model.register_forward_pre_hook(self.add)
        return self

    def add(self, *_: object) -> None:
        self.count += 1

    def __exit__(self, *_: object) -> None:
        self.hook.remove()


@pytest.mark.parametrize(("method", "fewest"), [("shapley", 30), ("greedy", 8)])
def test_too_few_evaluations_are_refused_before_averages(
    model: PreTrainedModel, batches: Batches, method: str, fewest: int
) -> None:
    with CountedPasses(model) as passes:
        with pytest.raises(papa.PapaError, match=f"evaluations.* {fewest} "):
            papa.head_scores(model, batches, method=method, evaluations=fewest - 1)
        assert passes.count == 1, "of one text, by which the model's loss is known"
        papa.head_scores(
            model, batches, method=method, evaluations=fewest, ranking_seeds=[0], progress=False
        )
        assert passes.count > 2, "negative control: as many as the method needs are taken"


def test_heads_that_a_model_lacks_are_refused_before_any_pass(
    model: PreTrainedModel, batches: Batches
) -> None:
    with CountedPasses(model) as passes:
        with pytest.raises(papa.PapaError, match="head"):
            papa.joint_effects(model, batches, head_sets=[[(0, 0), (2, 0)]])
        assert not passes.count
        papa.joint_effects(model, batches, head_sets=[[(0, 0), (1, 0)]], progress=False)
        assert passes.count, "negative control"


def test_an_average_is_of_its_own_texts(batches: Batches, search: Search) -> None:
    def effects(texts: Batches | None) -> list[float]:
        trials = search(max_effect=0.01, substitute="average", substitute_data=texts).trials
        return trials["effect"].tolist()

    ids = torch.randint(1, 50, (16, 10), generator=torch.Generator().manual_seed(3))
    other_texts = [{"input_ids": ids, "attention_mask": torch.ones_like(ids)}]
    assert effects(batches) == pytest.approx(effects(None))
    assert effects(other_texts)[0] != pytest.approx(effects(None)[0], rel=1e-3)
