"""NaN and infinity stop what they reach, with a sentence that says where."""

from collections import Counter
from collections.abc import Callable
from typing import Literal

import pytest
import torch

from papa.errors import NumbersError, SpecError
from papa.heads.average import average_split
from papa.heads.constants import control
from papa.models.encoder import Encoder, load_encoder
from papa.models.reference import EncoderReference
from papa.probes.features import FeatureModel, WordEmbeddings
from papa.ranking.learned import train_lambda
from papa.text.batches import micro_batches
from papa.text.corpus import TokenisedSplit
from tests.probes.conftest import HEADS, Cell, Corpora, Tasks, with_probe

BATCH_TOKENS = 256
WORDS = "embeddings.word_embeddings.weight"
VALUES = "encoder.layer.0.attention.self.value.weight"
Poisoned = Callable[..., Encoder]
DIVERGENCE = r"learning_rate.*(nan|inf).*minibatch 2 of epoch 1.*1e\+30"
"""The first step is sound, whatever the rate; the second reads what the first has made."""


@pytest.fixture
def poisoned(reference: EncoderReference) -> Poisoned:

    def build(name: str, layer: int) -> Encoder:
        model = load_encoder(reference).model
        with torch.no_grad():
            model.get_parameter(name)[layer] = float("inf") if layer else float("nan")
        return Encoder(model)

    return build


def rare_token(split: TokenisedSplit, second_split: TokenisedSplit) -> tuple[int, int, int]:
    """A token that one row of both splits has: the token, its row, and its batch, from 1."""
    batches = list(micro_batches(split, None, BATCH_TOKENS))
    counts = Counter(split.tokens().input_ids.tolist())
    counts.update(second_split.tokens().input_ids.tolist())
    for number, batch in enumerate(batches[1:], 2):
        for token, owner in zip(batch.input_ids, batch.inputs_of_tokens, strict=True):
            if counts[int(token)] == 1:
                return int(token), int(batch.rows[owner]), number
    raise AssertionError("every token is in several rows")


@pytest.mark.parametrize("layer", [0, 1])
def test_a_bad_average_names_its_layer(poisoned: Poisoned, corpora: Corpora, layer: int) -> None:
    split = corpora["reviews"].split("train")
    with pytest.raises(NumbersError) as raised:
        average_split(poisoned(VALUES, layer), split, slots=64, batch_tokens=BATCH_TOKENS)
    first = next(micro_batches(split, None, BATCH_TOKENS))
    for place in ("layer 0", f"row {int(first.rows[0]) + 1}", "batch 1", "train", VALUES):
        assert place in str(raised.value)


@pytest.mark.parametrize(("split_name", "budget"), [("train", 1), ("validation", 0)])
@pytest.mark.parametrize("features_of", [lambda encoder: encoder, WordEmbeddings])
def test_a_bad_token_of_a_cell_names_its_row(
    poisoned: Poisoned,
    corpora: Corpora,
    cell: Cell,
    split_name: Literal["train", "validation"],
    budget: float,
    features_of: Callable[[Encoder], FeatureModel],
) -> None:
    """In the validation split a NaN would lose a prediction and nothing else."""
    splits = [corpora["reviews"].split(name) for name in ("train", "validation")]
    splits = splits if split_name == "train" else splits[::-1]
    token, row, batch = rare_token(*splits)
    model = features_of(poisoned(WORDS, token))
    with pytest.raises(NumbersError, match=f"row {row + 1}, batch {batch} of the {split_name}"):
        cell("reviews", model=model, budget=budget, batch_tokens=BATCH_TOKENS)


def test_a_bad_token_of_a_minibatch_names_its_row(
    poisoned: Poisoned, corpora: Corpora, tasks: Tasks, cell: Cell
) -> None:
    corpus = corpora["reviews"]
    token, row, _ = rare_token(corpus.split("train"), corpus.split("validation"))
    encoder = poisoned(WORDS, token)
    constants = control("toeplitz", encoder.layers, encoder.heads, 64)
    place = rf"row {row + 1}, minibatch \d of epoch 1"
    with pytest.raises(NumbersError, match=place):
        train_lambda(encoder, constants, corpus, tasks["reviews"])
    with pytest.raises(NumbersError, match=place):
        cell("reviews", model=encoder, constants=constants, heads=HEADS[:12], trained=True)


def test_a_probe_that_diverges_names_its_minibatch(tasks: Tasks, cell: Cell) -> None:
    with pytest.raises(SpecError, match=DIVERGENCE):
        cell(with_probe(tasks["reviews"], learning_rate=1e30), batch_tokens=BATCH_TOKENS)


def test_diverging_lambda_names_its_minibatch(
    encoder: Encoder, corpora: Corpora, tasks: Tasks
) -> None:
    task = with_probe(tasks["reviews"], learning_rate=1e30)
    constants = control("toeplitz", encoder.layers, encoder.heads, 64)
    with pytest.raises(SpecError, match=DIVERGENCE):
        train_lambda(encoder, constants, corpora["reviews"], task)
