"""A model's own answers with heads replaced: which measures, of which tokens, and what
is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas
import pytest
import torch
from scipy.stats import entropy

import papa
from papa.errors import DataError
from papa.heads.substitutes import Mixed, Zeros
from papa.native.batches import BATCH_TEXTS, InMemoryTexts
from papa.native.passes import NativeHead
from papa.scores.answers import embedding_fidelity
from tests.make import GPT2, RANGE, SIZES, inputs_of, model_factory, random_model

LAYERS = 2
HEADS = 4
EVERY_HEAD = {layer: list(range(HEADS)) for layer in range(LAYERS)}
TEXTS = 24


def bert(kind: str = "Model", **settings: Any) -> Any:
    torch.manual_seed(0)
    sizes = {**SIZES, "num_hidden_layers": LAYERS, "vocab_size": 99}
    return model_factory("Bert", kind, **sizes, **settings)().eval()


def gpt() -> Any:
    torch.manual_seed(0)
    sizes = {**GPT2, "n_layer": LAYERS, "n_positions": 16, "vocab_size": 99, "bos_token_id": 0}
    return model_factory(
        "GPT2", "LMHeadModel", **sizes, eos_token_id=0, initializer_range=RANGE
    )().eval()


def texts(left: bool = False) -> list[dict[str, torch.Tensor]]:
    draw = torch.Generator().manual_seed(1)
    ids = torch.randint(1, 99, (TEXTS, 9), generator=draw)
    mask = torch.arange(9)[None] < torch.randint(4, 10, (TEXTS, 1), generator=draw)
    if left:
        ids = ids.flip(1)
        mask = mask.flip(1)
    halves = zip((ids * mask).split(TEXTS // 2), mask.long().split(TEXTS // 2), strict=True)
    return [{"input_ids": token_ids, "attention_mask": real} for token_ids, real in halves]


def without_padding(data: list[dict[str, torch.Tensor]]) -> list[dict[str, torch.Tensor]]:
    return [
        {"input_ids": ids[mask.bool()][None]}
        for batch in data
        for ids, mask in zip(batch["input_ids"], batch["attention_mask"], strict=True)
    ]


@pytest.mark.parametrize(
    ("model", "measures"),
    [
        (bert(), {"cosine", "similarities", "nearest_1", "nearest_10"}),
        (bert("ForSequenceClassification", num_labels=3), {"agreement", "divergence"}),
        (bert("ForTokenClassification", num_labels=5), {"agreement", "divergence"}),
        (bert("ForMaskedLM"), {"agreement", "divergence"}),
        (gpt(), {"agreement", "divergence", "loss_before", "loss_after", "loss_difference"}),
    ],
    ids=lambda argument: type(argument).__name__,
)
def test_each_kind_of_model_by_its_own_measures(model: Any, measures: set[str]) -> None:
    none, every_head = (
        papa.fidelity(model, texts(), heads=heads, substitute="zeros") for heads in ([], EVERY_HEAD)
    )
    assert set(none.index) == set(every_head.index) == measures
    assert none.attrs["texts"] == TEXTS
    for name in measures & {"cosine", "similarities", "nearest_1", "nearest_10", "agreement"}:
        assert none["value"][name] == pytest.approx(1, abs=1e-5), name
        assert every_head["high"][name] < 1, name
    for name in measures & {"divergence", "loss_difference"}:
        assert none["value"][name] == pytest.approx(0, abs=1e-4), name
        assert abs(every_head["value"][name]) > 0.01, name
    unpadded = papa.fidelity(model, without_padding(texts()), heads=EVERY_HEAD, substitute="zeros")
    assert unpadded["value"].to_dict() == pytest.approx(every_head["value"].to_dict(), abs=1e-4)


@torch.no_grad()
def test_the_numbers_are_those_of_a_plain_loop() -> None:
    def embedded() -> np.ndarray:
        states = [
            encoder(**token_states).last_hidden_state[0]
            for token_states in without_padding(texts())
        ]
        return np.stack([token_states.mean(0).numpy() for token_states in states])

    def logits(model: Any) -> torch.Tensor:
        if model is decoder:
            return torch.cat([model(**batch).logits[0, :-1] for batch in without_padding(texts())])
        return torch.cat([model(**batch).logits for batch in texts()])

    encoder = bert()
    decoder = gpt()
    classifier = bert("ForSequenceClassification", num_labels=3)
    with papa.ablated(encoder, EVERY_HEAD, substitute="zeros"):
        after = embedded()
    values = papa.fidelity(encoder, texts(), heads=EVERY_HEAD, substitute="zeros")["value"]
    for name, measure in embedding_fidelity(embedded(), after).items():
        assert values[name] == pytest.approx(measure.mean, abs=1e-4), name
    for model in (classifier, decoder):
        with papa.ablated(model, EVERY_HEAD, substitute="zeros"):
            changed = logits(model).softmax(1)
        expected = entropy(logits(model).softmax(1), changed, axis=1).mean()
        values = papa.fidelity(model, texts(), heads=EVERY_HEAD, substitute="zeros")["value"]
        assert values["divergence"] == pytest.approx(expected, abs=1e-4)


@torch.no_grad()
def test_labels_that_are_decided_one_by_one_are_answers_of_their_own() -> None:
    problem = "multi_label_classification"
    model = bert("ForSequenceClassification", num_labels=3, problem_type=problem)
    model.classifier.bias.copy_(torch.tensor([0.2, 0.0, -0.2]))

    def chances() -> torch.Tensor:
        return torch.cat([model(**batch).logits for batch in texts()]).sigmoid()

    before = chances()
    with papa.ablated(model, EVERY_HEAD, substitute="zeros"):
        after = chances()
    values = papa.fidelity(model, texts(), heads=EVERY_HEAD, substitute="zeros")["value"]
    agreement = ((before > 0.5) == (after > 0.5)).float().mean().item()
    sides = [torch.stack([1 - batch, batch]).flatten(1).numpy() for batch in (before, after)]
    assert values["agreement"] == pytest.approx(agreement)
    assert values["divergence"] == pytest.approx(entropy(*sides).mean(), abs=1e-4)
    assert abs(agreement - (before.argmax(1) == after.argmax(1)).float().mean()) > 0.1, (
        "negative control"
    )
    labelled = [{**batch, "labels": (batch["input_ids"][:, :3] % 2).float()} for batch in texts()]
    labels = torch.cat([batch["labels"] for batch in labelled])
    expected = {
        "accuracy": ((before > 0.5) == labels.bool()).float().mean().item(),
        "negative_log_perplexity": -torch.nn.functional.binary_cross_entropy(before, labels).item(),
    }
    splits = {"train": labelled, "validation": labelled}
    few: dict[str, Any] = {"orders": ["first_to_last"], "keep": [1], "progress": False}
    for score, value in expected.items():
        measured = papa.measure(model, splits, score=score, substitutes=["zeros"], **few)
        assert measured.summary["mean"][0] == pytest.approx(value, abs=1e-5)


def test_a_head_of_numbers_has_no_classes() -> None:
    model = bert("ForSequenceClassification", num_labels=3, problem_type="regression")
    with pytest.raises(papa.PapaError, match="score="):
        papa.fidelity(model, texts(), heads=[(0, 0)], substitute="zeros")


@pytest.mark.parametrize("model", [bert(), gpt()], ids=["bert", "gpt"])
def test_masks_of_four_dimensions_have_the_numbers_of_two(model: Any) -> None:
    def whole(mask: torch.Tensor) -> torch.Tensor:
        keys = mask[:, None, None].bool().expand(-1, 1, 9, 9)
        return keys.tril() if model.can_generate() else keys

    lowest = torch.finfo(torch.float32).min
    expected = papa.fidelity(model, texts(), heads=EVERY_HEAD, substitute="zeros")
    for kind in (whole, lambda mask: torch.where(whole(mask), 0.0, lowest)):
        data = [{**batch, "attention_mask": kind(batch["attention_mask"])} for batch in texts()]
        fidelity = papa.fidelity(model, data, heads=EVERY_HEAD, substitute="zeros")
        pandas.testing.assert_frame_equal(fidelity, expected, atol=1e-5)


def test_padding_without_a_mask_is_refused() -> None:
    model = gpt()
    model.config.pad_token_id = 0
    (batch, _) = texts()
    for ids in (batch["input_ids"], batch["input_ids"].flip(1)):
        with pytest.raises(DataError, match=r"batch 1 .*\(0\).*attention_mask"):
            papa.fidelity(model, [batch, {"input_ids": ids}], heads=[(0, 0)], substitute="zeros")
    # One token of an end is no padding.
    ended = {"input_ids": torch.nn.functional.pad(torch.full((4, 5), 7), (0, 1))}
    assert papa.fidelity(model, [ended], heads=[(0, 0)], substitute="zeros").attrs["texts"] == 4


@torch.no_grad()
def test_losses_are_the_models_own_wherever_the_padding_is() -> None:
    model = gpt()
    masked = bert("ForMaskedLM")
    data = texts()
    tokens = np.array([batch["input_ids"].shape[1] - 1 for batch in without_padding(data)])
    for sided in (data, texts(left=True)):
        text_losses = [
            float(model(**batch, labels=batch["input_ids"]).loss)
            for batch in without_padding(sided)
        ]
        positions = [
            {**batch, "position_ids": (batch["attention_mask"].cumsum(1) - 1).clamp(0)}
            for batch in sided
        ]
        values = papa.fidelity(model, positions, heads=EVERY_HEAD, substitute="zeros")["value"]
        assert values["loss_before"] == pytest.approx(
            np.average(text_losses, weights=tokens), abs=1e-4
        )
        assert values["loss_difference"] == pytest.approx(
            values["loss_after"] - values["loss_before"]
        )
    labels = torch.where(torch.arange(9)[None] % 3 == 1, data[0]["input_ids"], -100)
    with_labels = {**data[0], "labels": torch.where(data[0]["attention_mask"].bool(), labels, -100)}
    values = papa.fidelity(masked, [with_labels], heads=EVERY_HEAD, substitute="zeros")["value"]
    assert values["loss_before"] == pytest.approx(float(masked(**with_labels).loss), abs=1e-4)


@pytest.mark.unchecked
def test_sound_whose_mask_is_over_samples() -> None:
    model = random_model("wav2vec2")
    seeds = range(10)
    mask = torch.ones(3, 200, dtype=torch.long)
    mask[1, 120:] = 0
    whole = [inputs_of("wav2vec2", seed=seed, batch=3)["input_values"] for seed in seeds]
    with_mask, without_mask = (
        papa.fidelity(
            model,
            [{"input_values": waveform, **mask_argument} for waveform in whole],
            heads=[(0, 0), (1, 1)],
            substitute="mean_output",
        )
        for mask_argument in ({"attention_mask": mask}, {})
    )
    assert with_mask.attrs["texts"] == 30
    assert np.abs(without_mask["value"] - with_mask["value"]).max() > 1e-4


EVERY = [(layer, head) for layer in range(LAYERS) for head in range(HEADS)]


def scores(model: Any, data: Any, method: str, constants: Any = "zeros", **options: Any) -> Any:
    return papa.head_scores(
        model, data, method=method, substitute=constants, progress=False, **options
    )


@pytest.mark.parametrize(
    ("model", "measure", "change_of"),
    [
        (bert(), "cosine", lambda values: 1 - values["cosine"]),
        (
            bert("ForSequenceClassification", num_labels=3),
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
    model: Any, measure: str, change_of: Any, substitute: str
) -> None:
    head_effects = scores(model, texts(), "effect", substitute)
    assert head_effects[["layer", "head"]].to_records(index=False).tolist() == EVERY
    assert (set(head_effects["method"]), head_effects.attrs["measure"]) == ({"effect"}, measure)
    expected = [
        change_of(papa.fidelity(model, texts(), heads=[head], substitute=substitute)["value"])
        for head in EVERY
    ]
    np.testing.assert_allclose(head_effects["score"], expected, atol=1e-6)
    assert (head_effects["low"] < head_effects["score"]).all()
    assert (head_effects["score"] < head_effects["high"]).all()
    assert head_effects["score"].abs().max() > 0.001, "negative control"


def test_a_substitute_is_made_once_and_the_model_left_as_it_was() -> None:
    model = bert()
    before = model(**texts()[0]).last_hidden_state

    def passes(substitute: str) -> int:
        counted: list[int] = []
        handle = model.register_forward_hook(lambda *_: counted.append(1))
        scores(model, iter(texts()), "effect", substitute, substitute_data=iter(texts()))
        handle.remove()
        return len(counted)

    batches = -(-TEXTS // BATCH_TEXTS)
    assert passes("mean_output") == passes("zeros") + batches, "one pass over the texts"
    assert model(**texts()[0]).last_hidden_state.equal(before)


@pytest.mark.parametrize("model", [gpt(), bert("ForMaskedLM"), bert()])
def test_lambda_of_any_model_is_trained_without_labels(model: Any) -> None:
    """A loss that only moves λ: less is lost of the model's answers than at its start, and the
    model stays whole.
    """
    weights = {name: parameter.clone() for name, parameter in model.state_dict().items()}
    lambdas = scores(model, texts(), "lambda", epochs=4, ranking_seeds=[0, 1])
    assert lambdas[["layer", "head"]].to_records(index=False).tolist() == EVERY
    assert (lambdas["score"] - 0.5).abs().max() > 0.05
    assert (lambdas["low"] < lambdas["score"]).all()
    assert all(
        torch.equal(parameter, weights[name]) for name, parameter in model.state_dict().items()
    )
    assert all(
        parameter.requires_grad and parameter.grad is None for parameter in model.parameters()
    )
    pandas.testing.assert_frame_equal(
        scores(model, texts(), "lambda", epochs=4, ranking_seeds=[0, 1]), lambdas
    )


def in_one_batch() -> list[dict[str, torch.Tensor]]:
    return [{name: torch.cat([batch[name] for batch in texts()]) for name in texts()[0]}]


@pytest.mark.parametrize("model", [gpt(), bert(), bert("ForSequenceClassification", num_labels=3)])
@pytest.mark.parametrize(
    "data", [in_one_batch(), without_padding(texts())], ids=["one batch", "alone"]
)
def test_lambda_does_not_depend_on_how_texts_are_batched(model: Any, data: Any) -> None:
    expected = scores(model, texts(), "lambda", "average", ranking_seeds=[0, 1])
    lambdas = scores(model, data, "lambda", "average", ranking_seeds=[0, 1])
    # Padding of a batch changes the order of sums, which three epochs of training carry on.
    pandas.testing.assert_frame_equal(lambdas, expected, rtol=1e-3, atol=1e-4)
    assert (
        scores(model, texts(), "lambda", ranking_seeds=[0, 2])["score"] != expected["score"]
    ).any()


def test_intervals_of_lambda_need_seeds_with_texts_of_their_own() -> None:
    model = gpt()
    one_batch = in_one_batch()
    enough = scores(model, one_batch, "lambda", ranking_seeds=[0, 1, 2])
    assert (enough["high"] - enough["low"] > 1e-3).all()
    few = [{name: rows[:8] for name, rows in one_batch[0].items()}]
    for data, seeds in ((few, [0, 1, 2]), (one_batch, [0]), (one_batch, [0, 0])):
        unknown = scores(model, data, "lambda", ranking_seeds=seeds)
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
        lambdas_by_seed.append(scores(model, [{"input_ids": ids}], "lambda", "average"))
    truth = np.mean([frame["score"] for frame in lambdas_by_seed], axis=0)
    covered = [(frame["low"] <= truth) & (truth <= frame["high"]) for frame in lambdas_by_seed]
    assert 0.85 < np.mean(covered) < 0.99


def test_packed_rows_stay_whole_with_a_warning() -> None:
    packed = {"input_ids": texts()[0]["input_ids"][:4], "position_ids": torch.arange(9)[None]}
    with pytest.warns(UserWarning, match="1 of 1 batches"):
        scores(gpt(), [packed], "lambda", ranking_seeds=[0])


def test_a_cosine_has_one_interval() -> None:
    model = bert()
    effect = scores(model, texts(), "effect").iloc[1]
    cosine = papa.fidelity(model, texts(), heads=[(0, 1)], substitute="zeros").loc["cosine"]
    summary = papa.measure(
        model,
        {"train": texts(), "validation": texts()},
        substitutes=["zeros"],
        orders=[[(0, 1)]],
        keep=[1, 7 / 8],
        progress=False,
    ).summary.iloc[1]
    for low, high in ((cosine["low"], cosine["high"]), (summary["low"], summary["high"])):
        assert [1 - high, 1 - low] == pytest.approx([effect["low"], effect["high"]], abs=1e-6)


def test_the_gradient_of_theta_is_that_of_finite_differences() -> None:
    """One step of AdamW goes by the learning rate against the gradient's sign."""
    model = gpt()
    data = [{name: rows[:4] for name, rows in texts()[0].items()}]
    step = scores(model, data, "lambda", epochs=1, learning_rate=0.1, ranking_seeds=[0])
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
