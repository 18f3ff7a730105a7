"""Scores of the heads of a model in memory: by their effect, and λ trained without labels."""

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import pandas
import pytest
import torch
from transformers import PreTrainedModel
from transformers.utils import ModelOutput

import papa
from papa.heads.substitutes import Mixed, Zeros
from papa.native.batches import InMemoryTexts
from papa.native.passes import NativeHead
from papa.scores.custom import CustomScore
from tests.native.models import (
    EVERY_HEAD,
    HEADS,
    LAYERS,
    TEXTS,
    bert,
    gpt,
    in_one_batch,
    labelled,
    splits,
    texts,
    without_padding,
)

Batches = list[dict[str, torch.Tensor]]
EVERY = [(layer, head) for layer in range(LAYERS) for head in range(HEADS)]


effects = partial(papa.head_scores, method="effect", progress=False)
lambdas_of = partial(papa.head_scores, method="lambda", substitute="zeros", progress=False)


@pytest.mark.parametrize(
    ("model", "measure", "change_of"),
    [
        (bert(), "cosine", lambda values: 1 - values["cosine"]),
        (
            bert("ForSequenceClassification", labels=3),
            "divergence",
            lambda values: values["divergence"],
        ),
        (bert("ForMaskedLM"), "divergence", lambda values: values["divergence"]),
        (gpt(), "loss", lambda values: values["loss_difference"]),
    ],
    ids=lambda argument: type(argument).__name__,
)
@pytest.mark.parametrize("substitute", ["zeros", "mean_output"])
def test_each_head_is_measured_as_if_it_were_replaced_by_hand(
    model: PreTrainedModel,
    measure: str,
    change_of: Callable[[pandas.Series], float],
    substitute: str,
) -> None:
    head_effects = effects(model, texts(), substitute=substitute)
    assert head_effects[["layer", "head"]].to_records(index=False).tolist() == EVERY
    assert (set(head_effects["method"]), head_effects.attrs["measure"]) == ({"effect"}, measure)
    by_head = [papa.fidelity(model, texts(), heads=[head], substitute=substitute) for head in EVERY]
    expected = [change_of(fidelity["value"]) for fidelity in by_head]
    np.testing.assert_allclose(head_effects["score"], expected, atol=1e-6)
    assert (head_effects["low"] < head_effects["score"]).all()
    assert (head_effects["score"] < head_effects["high"]).all()
    assert head_effects["score"].abs().max() > 0.001, "negative control"


CLASSIFIER = bert("ForSequenceClassification", labels=3)


def of_first_class(outputs: ModelOutput, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    return outputs.logits.softmax(-1)[:, 0]


@torch.no_grad()
def test_with_a_score_of_labels_an_effect_is_the_growth_of_their_loss() -> None:
    def loss() -> float:
        return float(torch.stack([CLASSIFIER(**batch).loss for batch in labelled()]).mean())

    original = loss()
    expected: list[float] = []
    for head in EVERY:
        with papa.ablated(CLASSIFIER, [head], substitute="zeros"):
            expected.append(loss() - original)
    by_labels = effects(CLASSIFIER, labelled(), substitute="zeros", score="accuracy")
    np.testing.assert_allclose(by_labels["score"], expected, atol=1e-6)
    without = effects(CLASSIFIER, labelled(), substitute="zeros")
    assert (without["score"] - by_labels["score"]).abs().max() > 1e-4, "negative control"


def test_an_effect_on_labels_is_that_of_the_texts_that_have_one() -> None:
    data = labelled()
    for batch in data:
        batch["labels"][::2] = -100
    with_label = [{name: rows[1::2] for name, rows in batch.items()} for batch in data]
    scores = effects(CLASSIFIER, data, substitute="zeros", score="accuracy")["score"]
    expected = effects(CLASSIFIER, with_label, substitute="zeros", score="accuracy")["score"]
    np.testing.assert_allclose(scores, expected, atol=1e-6)
    assert expected.abs().max() > 1e-4, "negative control"


@pytest.mark.parametrize(
    ("method", "score"),
    [
        ("effect", None),
        ("effect", "accuracy"),
        ("effect", of_first_class),
        ("gradient", "negative_log_perplexity"),
        ("lambda", "accuracy"),
    ],
)
def test_a_score_is_the_same_in_measure_and_in_head_scores(
    method: str, score: str | CustomScore | None
) -> None:
    data = splits(labelled())
    measured = papa.measure(
        CLASSIFIER, data, orders=[method], keep=[1], score=score, progress=False
    ).head_scores
    scores = papa.head_scores(CLASSIFIER, data["train"], method=method, score=score, progress=False)
    pandas.testing.assert_frame_equal(scores, measured)
    assert measured.attrs.items() <= scores.attrs.items()


def test_progress_counts_the_seeds_that_are_scored(capsys: pytest.CaptureFixture[str]) -> None:
    papa.head_scores(CLASSIFIER, labelled(), method="effect", progress=True)
    assert "(1 of 1)" in capsys.readouterr().err, "the other seeds have the same texts"


def test_the_default_method_is_effect() -> None:
    scores = papa.head_scores(CLASSIFIER, labelled(), score=of_first_class, progress=False)
    measured = papa.measure(CLASSIFIER, splits(labelled()), keep=[1], progress=False)
    assert set(scores["method"]) == {"effect"} == set(measured.results["order"])


@pytest.mark.parametrize(
    "call",
    [
        effects,
        partial(papa.search_heads, scores=torch.rand(LAYERS, HEADS), max_effect=0.1),
        partial(papa.joint_effects, head_sets=[EVERY]),
    ],
)
@pytest.mark.parametrize("score", ["accuracy", "acuracy"])
def test_a_score_that_data_does_not_allow_is_named(call: Callable[..., object], score: str) -> None:
    with pytest.raises(papa.PapaError, match=f"score.*{score}"):
        call(CLASSIFIER, texts(), score=score)


@pytest.mark.parametrize(
    ("method", "score"),
    [("lambda", of_first_class), ("confidence", "accuracy"), ("confidence", of_first_class)],
)
def test_a_method_that_follows_no_such_score_is_named(
    method: str, score: str | CustomScore
) -> None:
    with pytest.raises(papa.PapaError, match=method):
        papa.head_scores(CLASSIFIER, labelled(), method=method, score=score)


@pytest.mark.parametrize(
    ("call", "setting"),
    [
        (partial(papa.head_scores, rows=-1), "rows"),
        (partial(papa.head_scores, epochs=0), "epochs"),
        (partial(papa.head_scores, learning_rate=-0.1), "learning_rate"),
    ],
)
def test_a_setting_out_of_range_is_named(call: Callable[..., object], setting: str) -> None:
    with pytest.raises(papa.PapaError, match=setting):
        call(CLASSIFIER, texts())


@pytest.mark.parametrize("model", [gpt(), bert("ForMaskedLM"), bert()])
def test_lambda_of_any_model_is_trained_without_labels(model: PreTrainedModel) -> None:
    """Less is lost of the model's answers than at its start, and the model stays whole."""
    weights = {name: weight.clone() for name, weight in model.state_dict().items()}
    trained = lambdas_of(model, texts(), epochs=4, ranking_seeds=[0, 1])
    assert trained[["layer", "head"]].to_records(index=False).tolist() == EVERY
    assert (trained["score"] - 0.5).abs().max() > 0.05
    assert (trained["low"] < trained["score"]).all()
    assert all(torch.equal(weight, weights[name]) for name, weight in model.state_dict().items())
    assert all(weight.requires_grad and weight.grad is None for weight in model.parameters())
    repeated = lambdas_of(model, texts(), epochs=4, ranking_seeds=[0, 1])
    pandas.testing.assert_frame_equal(repeated, trained)


@pytest.mark.parametrize("model", [gpt(), bert(), bert("ForSequenceClassification", labels=3)])
@pytest.mark.parametrize(
    "data", [in_one_batch(), without_padding(texts())], ids=["one batch", "alone"]
)
def test_lambda_is_the_same_for_any_batching(model: PreTrainedModel, data: Batches) -> None:
    expected = lambdas_of(model, texts(), substitute="average", ranking_seeds=[0, 1])
    lambdas = lambdas_of(model, data, substitute="average", ranking_seeds=[0, 1])
    # Padding of a batch changes the order of sums, which three epochs of training carry on.
    pandas.testing.assert_frame_equal(lambdas, expected, rtol=1e-3, atol=1e-4)
    assert (lambdas_of(model, texts(), ranking_seeds=[0, 2])["score"] != expected["score"]).any()


def test_intervals_of_lambda_need_seeds_with_texts_of_their_own() -> None:
    model = gpt()
    one_batch = in_one_batch()
    enough = lambdas_of(model, one_batch, ranking_seeds=[0, 1, 2])
    assert (enough["high"] - enough["low"] > 1e-3).all()
    few = [{name: rows[:8] for name, rows in one_batch[0].items()}]
    for data, seeds in ((few, [0, 1, 2]), (one_batch, [0]), (one_batch, [0, 0])):
        unknown = lambdas_of(model, data, ranking_seeds=seeds)
        assert unknown[["low", "high"]].isna().all(axis=None)
        assert (unknown["score"] != 0.5).all()


@pytest.mark.slow
def test_the_interval_of_lambda_covers_what_it_says() -> None:
    """The truth is the mean over all sets of texts; 24 texts make three seeds of eight."""
    model = gpt()
    lambdas_by_seed = []
    for seed in range(60):
        draw = torch.Generator().manual_seed(seed)
        ids = torch.randint(1, 99, (24, 6), generator=draw)
        lambdas_by_seed.append(lambdas_of(model, [{"input_ids": ids}], substitute="average"))
    truth = np.mean([frame["score"] for frame in lambdas_by_seed], axis=0)
    covered = [(frame["low"] <= truth) & (truth <= frame["high"]) for frame in lambdas_by_seed]
    assert 0.85 < np.mean(covered) < 0.99


@pytest.mark.parametrize(("method", "rows"), [("gradient", None), ("effect", TEXTS // 3)])
def test_three_seeds_divide_the_texts(method: str, rows: int | None) -> None:
    """Their mean is that of all texts, which are equally long."""
    ids = torch.randint(1, 99, (TEXTS, 6), generator=torch.Generator().manual_seed(2))
    scores = partial(papa.head_scores, gpt(), method=method, substitute="zeros", progress=False)
    divided = scores([{"input_ids": ids}], rows=rows, ranking_seeds=[0, 1, 2])["score"]
    of_all = scores([{"input_ids": ids}], ranking_seeds=[0])["score"]
    np.testing.assert_allclose(divided, of_all, rtol=1e-4, atol=1e-6)
    of_a_third = scores([{"input_ids": ids[: TEXTS // 3]}], ranking_seeds=[0])["score"]
    assert (of_a_third - of_all).abs().max() > 1e-3, "negative control"


def test_packed_rows_stay_whole_with_a_warning() -> None:
    packed = {"input_ids": texts()[0]["input_ids"][:4], "position_ids": torch.arange(9)[None]}
    with pytest.warns(UserWarning, match="2 of 2 batches"):
        lambdas_of(gpt(), [packed, packed], ranking_seeds=[0])


def test_the_gradient_of_theta_is_that_of_finite_differences() -> None:
    """One step of AdamW goes by the learning rate against the gradient's sign."""
    model = gpt()
    data = [{name: rows[:4] for name, rows in texts()[0].items()}]
    step = lambdas_of(model, data, epochs=1, learning_rate=0.1, ranking_seeds=[0])
    assert step["low"].isna().all(), "of one seed nothing is known"
    values = step["score"].to_numpy().reshape(LAYERS, HEADS)

    def loss(theta: torch.Tensor) -> float:
        with papa.ablated(model, EVERY_HEAD, substitute=Mixed(Zeros(), theta.sigmoid())):
            answers = NativeHead(model, InMemoryTexts.from_batches(data, model)).all_answers()
        return -float(answers["log_probabilities"].mean())

    signs = np.empty((2, 4))
    for layer in range(2):
        for head in range(4):
            moved = torch.zeros(2, 4)
            moved[layer, head] = 0.02
            signs[layer, head] = np.sign(loss(moved) - loss(-moved))
    assert np.array_equal(np.sign(0.5 - values), signs)
    assert len(set(signs.flatten())) == 2
    assert np.abs(np.log(values / (1 - values))) == pytest.approx(np.full((2, 4), 0.1), abs=1e-3)
