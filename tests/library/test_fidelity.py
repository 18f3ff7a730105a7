"""A model's answers with heads replaced: which measures, of which tokens; what is refused."""

import numpy as np
import pandas
import pytest
import torch
from scipy.stats import entropy
from transformers import PreTrainedModel

import papa
from papa.errors import DataError
from papa.scores.embeddings import embedding_fidelity
from tests.make import outputs_of
from tests.native.models import EVERY_HEAD, TEXTS, bert, gpt, texts, without_padding


@pytest.mark.parametrize(
    ("model", "measures"),
    [
        (bert(), {"cosine", "similarities", "nearest_1", "nearest_10"}),
        (bert("ForSequenceClassification", labels=3), {"agreement", "divergence"}),
        (bert("ForTokenClassification", labels=5), {"agreement", "divergence"}),
        (bert("ForMaskedLM"), {"agreement", "divergence"}),
        (gpt(), {"agreement", "divergence", "loss_before", "loss_after", "loss_difference"}),
    ],
    ids=lambda argument: type(argument).__name__,
)
def test_each_kind_of_model_by_its_own_measures(model: PreTrainedModel, measures: set[str]) -> None:
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
        batches = without_padding(texts())
        states = [outputs_of(encoder, batch).last_hidden_state[0] for batch in batches]
        return np.stack([token_states.mean(0).numpy() for token_states in states])

    def logits(model: PreTrainedModel) -> torch.Tensor:
        if model is decoder:
            batches = without_padding(texts())
            return torch.cat([outputs_of(model, batch).logits[0, :-1] for batch in batches])
        return torch.cat([outputs_of(model, batch).logits for batch in texts()])

    encoder = bert()
    decoder = gpt()
    classifier = bert("ForSequenceClassification", labels=3)
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
    model = bert("ForSequenceClassification", labels=3, problem_type=problem)
    model.classifier.bias.copy_(torch.tensor([0.2, 0.0, -0.2]))

    def chances() -> torch.Tensor:
        return torch.cat([outputs_of(model, batch).logits for batch in texts()]).sigmoid()

    before = chances()
    with papa.ablated(model, EVERY_HEAD, substitute="zeros"):
        after = chances()
    values = papa.fidelity(model, texts(), heads=EVERY_HEAD, substitute="zeros")["value"]
    agreement = ((before > 0.5) == (after > 0.5)).float().mean().item()
    sides = [torch.stack([1 - batch, batch]).flatten(1).numpy() for batch in (before, after)]
    assert values["agreement"] == pytest.approx(agreement)
    assert values["divergence"] == pytest.approx(entropy(*sides).mean(), abs=1e-4)
    by_label = (before.argmax(1) == after.argmax(1)).float().mean()
    assert abs(agreement - by_label) > 0.1, "negative control"
    labelled = [{**batch, "labels": (batch["input_ids"][:, :3] % 2).float()} for batch in texts()]
    labels = torch.cat([batch["labels"] for batch in labelled])
    expected = {
        "accuracy": ((before > 0.5) == labels.bool()).float().mean().item(),
        "negative_log_perplexity": -torch.nn.functional.binary_cross_entropy(before, labels).item(),
    }
    splits = {"train": labelled, "validation": labelled}
    for score, value in expected.items():
        measured = papa.measure(
            model, splits, score=score, orders=["first_to_last"], keep=[1], progress=False
        )
        assert measured.summary["mean"][0] == pytest.approx(value, abs=1e-5)


@pytest.mark.parametrize("model", [bert(), gpt()], ids=["bert", "gpt"])
def test_masks_of_four_dimensions_have_the_numbers_of_two(model: PreTrainedModel) -> None:
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
    sizes = np.array([batch["input_ids"].shape[1] - 1 for batch in without_padding(data)])
    for sided in (data, texts(left=True)):
        labelled = [batch | {"labels": batch["input_ids"]} for batch in without_padding(sided)]
        losses = [float(outputs_of(model, batch).loss) for batch in labelled]
        counts = [(batch["attention_mask"].cumsum(1) - 1).clamp(0) for batch in sided]
        positions = [
            {**batch, "position_ids": ids} for batch, ids in zip(sided, counts, strict=True)
        ]
        fidelity = papa.fidelity(model, positions, heads=EVERY_HEAD, substitute="zeros")["value"]
        assert fidelity["loss_before"] == pytest.approx(np.average(losses, weights=sizes), abs=1e-4)
        difference = fidelity["loss_after"] - fidelity["loss_before"]
        assert fidelity["loss_difference"] == pytest.approx(difference)
    labels = torch.where(torch.arange(9)[None] % 3 == 1, data[0]["input_ids"], -100)
    marked = {**data[0], "labels": torch.where(data[0]["attention_mask"].bool(), labels, -100)}
    fidelity = papa.fidelity(masked, [marked], heads=EVERY_HEAD, substitute="zeros")["value"]
    expected = float(outputs_of(masked, marked).loss)
    assert fidelity["loss_before"] == pytest.approx(expected, abs=1e-4)
