"""NaN and infinity stop what they reach, in one sentence that says where: real encoders with bad
weights.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
import torch

from papa.errors import NumbersError, SpecError
from papa.heads.average import average_split
from papa.heads.constants import control
from papa.models.encoder import Encoder, load_encoder
from papa.models.reference import EncoderReference, has_bfloat16
from papa.probes.features import WordEmbeddings
from papa.ranking.learned import train_lambda
from papa.spec import Precision, RankingSpec, TaskSpec
from papa.text.batches import micro_batches
from papa.text.corpus import TokenisedCorpus, TokenisedSplit
from tests.probes.conftest import HEADS, Cell, with_probe

BATCH_TOKENS = 256
WORDS = "embeddings.word_embeddings.weight"
VALUES = "encoder.layer.0.attention.self.value.weight"
Poisoned = Callable[..., Encoder]


@pytest.fixture
def poisoned(reference: EncoderReference) -> Poisoned:

    def build(name: str, layer: int, precision: Precision = "float32") -> Encoder:
        model = load_encoder(reference).model
        with torch.no_grad():
            model.get_parameter(name)[layer] = float("inf") if layer else float("nan")
        return Encoder(model, precision=precision)

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
def test_a_bad_average_is_traced_to_its_layer(
    poisoned: Poisoned, corpora: dict[str, TokenisedCorpus], layer: int
) -> None:
    split = corpora["reviews"].split("train")
    with pytest.raises(NumbersError) as raised:
        average_split(poisoned(VALUES, layer), split, slots=64, batch_tokens=BATCH_TOKENS)
    first = next(micro_batches(split, None, BATCH_TOKENS))
    assert str(raised.value) == (
        f"the output of layer 0 of row {int(first.rows[0]) + 1}, batch 1 of the train split holds "
        f"NaN or infinity: so do the encoder's weights {VALUES}: use other weights"
    )


@pytest.mark.parametrize(
    ("split_name", "budget", "precision"),
    [
        ("train", 1, "float32"),
        ("validation", 0, "float32"),
        pytest.param(
            *("validation", 1, "bfloat16"),
            marks=pytest.mark.skipif(
                not has_bfloat16(), reason="this CPU does not multiply in bfloat16"
            ),
        ),
    ],
)
def test_one_bad_token_is_traced_to_its_row(
    poisoned: Poisoned,
    corpora: dict[str, TokenisedCorpus],
    tasks: dict[str, TaskSpec],
    cell: Cell,
    split_name: str,
    budget: float,
    precision: Precision,
) -> None:
    """In the validation split a NaN would lose a prediction and nothing else."""
    corpus = corpora["reviews"]
    task = tasks["reviews"]
    split = corpus.split("train" if split_name == "train" else "validation")
    second_split = corpus.split("validation" if split_name == "train" else "train")
    token, row, batch = rare_token(split, second_split)
    encoder = poisoned(WORDS, token, precision)
    bad = rf"the embeddings of row {row + 1}, {{}} holds NaN or infinity: so do"
    of_batch = bad.format(f"batch {batch} of the {split_name} split")
    options: dict[str, object] = {"budget": budget, "batch_tokens": BATCH_TOKENS}
    for model in (encoder, WordEmbeddings(encoder)):
        with pytest.raises(NumbersError, match=of_batch):
            cell("reviews", model=model, **options)
    if split_name == "train":
        constants = control("toeplitz", encoder.layers, encoder.heads, 64)
        of_minibatch = "^" + bad.format(r"minibatch \d of epoch 1")
        with pytest.raises(NumbersError, match=of_minibatch):
            train_lambda(encoder, constants, corpus, task, RankingSpec())
        trained = {"constants": constants, "heads": HEADS[:12], "trained": True}
        with pytest.raises(NumbersError, match=of_minibatch):
            cell("reviews", model=encoder, cell=trained)


def test_a_loss_that_diverges_names_its_minibatch(
    encoder: Encoder, corpora: dict[str, TokenisedCorpus], tasks: dict[str, TaskSpec], cell: Cell
) -> None:
    """The first step is sound, whatever the rate; the second reads what the first has made."""
    task = with_probe(tasks["reviews"], learning_rate=1e30)
    expected = r"learning_rate: the loss.* is (nan|inf), .*in minibatch 2 of epoch 1: lower the rate, now 1e\+30"  # noqa: E501
    with pytest.raises(SpecError, match=expected):
        cell(task, batch_tokens=BATCH_TOKENS)
    constants = control("toeplitz", encoder.layers, encoder.heads, 64)
    with pytest.raises(SpecError, match=expected):
        train_lambda(encoder, constants, corpora["reviews"], task, RankingSpec())
