"""What may stand for constant matrices, blocks inside blocks, and tensors that belong to whoever
called.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import pandas
import pytest
import torch
from torch import Tensor

import papa
from papa.attention.constants import control, derived
from papa.library.constants import own_constants
from tests.flows.conftest import artifacts
from tests.library.conftest import SLOTS

TEXTS = ["a fine film", "dull, and then it ends", "nothing here is new"]
SHAPE = (6, 12, SLOTS, SLOTS)
HALF = [(layer, head) for layer in range(6) for head in range(0, 12, 2)]


@pytest.fixture(scope="module")
def encoder() -> papa.TextEncoder:
    return papa.load_encoder("embedded/all-MiniLM-L6-v2", slots=SLOTS, device="cpu")


@pytest.fixture(scope="module")
def constants(encoder: papa.TextEncoder) -> papa.ConstantMatrices:
    return papa.average(encoder, TEXTS, progress=False)


def states(encoder: papa.TextEncoder, *blocks: tuple[Any, Any]) -> Tensor:
    """The last hidden states of the texts with the blocks entered one inside the other."""
    if blocks:
        (given, heads), *rest = blocks
        with papa.replaced(encoder, given, heads):
            return states(encoder, *rest)
    return torch.cat([one[:, -1] for one in papa.features(encoder, TEXTS, progress=False)])


def test_matrices_may_be_changed_and_handed_back(encoder: papa.TextEncoder) -> None:
    own = papa.average(encoder, TEXTS, progress=False)
    before = states(encoder, (own, HALF))
    own.matrices[:] = 0
    assert own.counts is not None
    assert not any(tensor.is_inference() for tensor in (own.matrices, own.seen, own.counts))
    assert states(encoder, (own, HALF)).equal(states(encoder, ("zeros", HALF)))
    assert not before.equal(states(encoder, (own, HALF)))


@pytest.mark.parametrize("kind", ["zeros", "identity", "toeplitz", "fibonacci"])
def test_a_control_goes_by_its_name(encoder: papa.TextEncoder, kind: Any) -> None:
    named = papa.constants(kind, encoder)
    assert named.matrices.equal(control(kind, 6, 12, SLOTS).matrices)
    assert states(encoder, (kind, HALF)).equal(states(encoder, (named, HALF)))
    assert not states(encoder, (kind, HALF)).equal(states(encoder)), "negative control"


def test_a_control_takes_its_parameters_and_no_others(encoder: papa.TextEncoder) -> None:
    own = papa.constants("local", encoder, window=1).matrices
    assert own[3, 4].sum(1).tolist() == [2.0, *[3.0] * (SLOTS - 2), 2.0]
    assert not own.equal(papa.constants("local", encoder).matrices), "negative control"
    for given in ({"window": SLOTS}, {"window": 0}, {"rank": 2}):
        with pytest.raises(papa.PapaError, match=f"takes window from 1 to {SLOTS - 1} here"):
            papa.constants("local", encoder, **given)
    with pytest.raises(papa.PapaError, match="takes no parameter here"):
        papa.constants("zeros", encoder, window=1)


@pytest.mark.parametrize("texts", [TEXTS, [(text, "second") for text in TEXTS]])
def test_what_is_made_of_an_average(encoder: papa.TextEncoder, texts: list[Any]) -> None:
    """As the stage of a study makes it, of texts and of pairs."""
    average = papa.average(encoder, texts, progress=False)
    middle = (SLOTS // 2,) if isinstance(texts[0], tuple) else ()
    made = papa.constants("relative", encoder, average=average)
    assert made.matrices.equal(derived("relative", average, (0, *middle, SLOTS - 1)).matrices)
    assert not made.matrices.equal(derived("relative", average, (0,)).matrices), "negative control"
    low = papa.constants("low_rank", encoder, average=average, rank=2, largest=0)
    assert low.matrices.equal(derived("low_rank", average, (), rank=2).matrices)
    assert not states(encoder, (low, HALF)).equal(states(encoder, (average, HALF)))
    with pytest.raises(papa.PapaError, match="takes rank from 1 to 32 and largest from 0 to 1024"):
        papa.constants("low_rank", encoder, average=average, rank=SLOTS + 1)
    with pytest.raises(papa.PapaError, match="of another encoder"):
        papa.constants("low_rank", encoder, average=replace(average, encoder_digest="other"))


@pytest.mark.parametrize(
    "given",
    [
        lambda matrices: matrices,
        lambda matrices: matrices.double().requires_grad_(),
        lambda matrices: matrices.numpy(),
        lambda matrices: matrices.double().numpy(),
    ],
)
def test_arrays_and_tensors_are_constants(
    encoder: papa.TextEncoder, constants: papa.ConstantMatrices, given: Callable[[Tensor], Any]
) -> None:
    found = states(encoder, (given(constants.matrices.clone()), HALF))
    assert found.equal(states(encoder, (constants, HALF)))
    assert not found.equal(states(encoder, (constants.matrices.flip(1), HALF))), "negative control"


def odd(value: float) -> Tensor:
    matrices = torch.zeros(SHAPE)
    matrices[2, 3, 4, 5] = value
    return matrices


NO_CONSTANTS: dict[str, tuple[Any, str]] = {
    "average": ("average", "'average' is taken over texts: give papa.average(encoder, texts)"),
    "trained": ("trained", "constants=['trained'] of papa.measure"),
    "a typing error": ("zeroes", "no constants 'zeroes' (did you mean 'zeros'?): take one of id"),
    "an output": ("mean_output", "measure it with constants=['mean_output'] of papa.measure, or"),
    "a derived kind": ("relative", "'relative' are made of an average: give average=papa.average("),
    "one matrix": (numpy.zeros((SLOTS, SLOTS)), f"have the shape [32, 32], expected {list(SHAPE)}"),
    "other heads": (
        torch.zeros(6, 6, SLOTS, SLOTS),
        f"have the shape [6, 6, 32, 32], expected {list(SHAPE)}",
    ),
    "other slots": (
        torch.zeros(6, 12, 64, 64),
        "are for 64 slots and the encoder was loaded with 32",
    ),
    "oblong": (
        torch.zeros(6, 12, 64, SLOTS),
        f"have the shape [6, 12, 64, 32], expected {list(SHAPE)}",
    ),
    "whole numbers": (
        torch.zeros(SHAPE, dtype=torch.long),
        "are of dtype int64, expected floating point",
    ),
    "objects": (numpy.full(SHAPE, None), "are of dtype object, expected floating point"),
    "a list": ([1], "constants is a list, expected ConstantMatrices"),
    "nothing": (None, "constants is a NoneType, expected ConstantMatrices"),
    "nan": (odd(float("nan")), "hold nan at [2, 3, 4, 5] (layer, head, from slot, to slot)"),
    "infinity": (odd(float("inf")).numpy(), "hold inf at [2, 3, 4, 5]"),
}


@pytest.mark.parametrize("case", sorted(NO_CONSTANTS))
def test_what_is_no_constants(encoder: papa.TextEncoder, case: str) -> None:
    given, sentence = NO_CONSTANTS[case]
    with pytest.raises(papa.PapaError, match=re.escape(sentence)) as refused:
        states(encoder, (given, HALF))
    assert "\n" not in str(refused.value)
    assert states(encoder).isfinite().all()


def test_changed_matrices_are_looked_at_too(
    encoder: papa.TextEncoder, constants: papa.ConstantMatrices
) -> None:
    with pytest.raises(papa.PapaError, match=r"hold nan at \[2, 3, 4, 5\]"):
        states(encoder, (replace(constants, matrices=odd(float("nan"))), HALF))


@pytest.mark.parametrize(
    "heads",
    [
        [(layer, head) for layer in range(6) for head in range(1, 12, 2)],  # the other half
        [(layer, head) for layer in (0, 3) for head in range(12)],  # some of them, and others
        HALF[:5],  # some of them alone
    ],
)
def test_an_inner_block_replaces_further_heads(
    encoder: papa.TextEncoder, constants: papa.ConstantMatrices, heads: list[tuple[int, int]]
) -> None:
    both = constants.matrices.clone()
    for head in heads:
        both[head] = papa.constants("toeplitz", encoder).matrices[head]
    union = sorted({*HALF, *heads})
    outer, inner = (constants, HALF), ("toeplitz", heads)
    torch.testing.assert_close(
        states(encoder, outer, inner), states(encoder, (both, union)), atol=1e-5, rtol=1e-5
    )
    if heads[0] in HALF:
        difference = states(encoder, inner, outer) - states(encoder, outer, inner)
        assert float(difference.abs().max()) > 1e-3, "negative control: the inner block wins"


def test_an_inner_block_leaves_the_outer_as_it_was(
    encoder: papa.TextEncoder, constants: papa.ConstantMatrices
) -> None:
    plain, outer = states(encoder), states(encoder, (constants, HALF))
    inside = [(layer, head) for layer in range(6) for head in range(12)]
    with papa.replaced(encoder, constants, HALF) as read:
        with papa.replaced(encoder, "zeros", inside):
            assert not states(encoder).equal(outer)
        assert read.read == 0, "the inner block replaced all of its heads"
        assert states(encoder).equal(outer)
        assert read.read > 0
    assert states(encoder).equal(plain)


@pytest.mark.parametrize("call", ["average", "train_lambda", "measure"])
def test_what_needs_the_whole_encoder_says_so_inside_a_block(
    encoder: papa.TextEncoder, constants: papa.ConstantMatrices, call: str
) -> None:
    data = {"text": ["good", "bad"], "label": ["yes", "no"]}
    calls: dict[str, Callable[[], Any]] = {
        "average": lambda: papa.average(encoder, TEXTS, progress=False),
        "measure": lambda: papa.measure(
            encoder, {"train": data, "validation": data}, progress=False
        ),
        "train_lambda": lambda: papa.train_lambda(
            encoder, constants, {"train": data, "validation": data}
        ),
    }
    with (
        papa.replaced(encoder, constants, HALF),
        pytest.raises(papa.PapaError, match="leave the block first"),
    ):
        calls[call]()


def test_a_probe_of_ones_own_trains_on_features(encoder: papa.TextEncoder) -> None:
    found = papa.features(encoder, TEXTS, progress=False)
    assert not any(one.requires_grad for one in found)
    inputs, labels = (
        torch.stack([one.mean(dim=(0, 1)) for one in found]),
        torch.tensor([0.0, 1.0, 1.0]),
    )
    probe = torch.nn.Linear(encoder.width, 1)
    optimiser, losses = torch.optim.Adam(probe.parameters(), lr=0.1), []
    for _ in range(20):
        loss = torch.nn.functional.binary_cross_entropy_with_logits(
            probe(inputs).squeeze(1), labels
        )
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2


def test_lambda_comes_in_any_form() -> None:
    values = [[0.9, 0.1], [0.4, 0.6]]
    forms = [
        values,
        numpy.array(values),
        pandas.DataFrame(values),
        torch.tensor(values, requires_grad=True),
    ]
    assert [papa.constant_heads(one, 0.5) for one in forms] == [((0, 1), (1, 0))] * len(forms)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ([0.9, 0.1], "numbers of shape [2]"),
        (pandas.DataFrame({"layer": ["a"], "λ": [0.5]}), "a DataFrame"),
        ("lambda", "a str"),
        (None, "numbers of shape []"),
        ([[0.9, 0.1], [0.4]], "a list"),
        ([[0.9, float("nan")]], "nan among them"),
        ([[]], "numbers of shape [1, 0]"),
    ],
)
def test_lambda_that_is_none(given: Any, found: str) -> None:
    sentence = (
        f"lambdas: found {found}, expected λ of every head as train_lambda gives it, [layers, "
        "heads]"
    )
    with pytest.raises(papa.PapaError, match=re.escape(sentence)) as refused:
        papa.constant_heads(given, 0.5)
    assert "\n" not in str(refused.value)


def test_a_measurement_takes_matrices(
    encoder: papa.TextEncoder, constants: papa.ConstantMatrices, tmp_path: Path
) -> None:
    """By the names that they have as kinds, or of one's own: the same scores, kept alike."""
    data = {"text": [*TEXTS, "a joy", "so long", "a bore to sit through"]}
    options: dict[str, Any] = {"fractions": [1, 0], "seeds": [0, 1], "orders": ["first_to_last"]}

    def scores(*given: Any) -> dict[str, list[float]]:
        found = papa.measure(
            encoder,
            {"train": data, "validation": data},
            papa.Task(label=None, metric="cosine", head="own"),
            constants=given,
            store=tmp_path / "store",
            progress=False,
            **options,
        )
        assert set(found.constants) == set(found.results["constants"])
        assert ("own" in found.table) == ("own" in found.constants)
        by_kind = found.results.query("fraction == 0").groupby("constants")["score"]
        return by_kind.agg(list).to_dict()

    named = scores("toeplitz", "average")
    average = papa.average(encoder, data["text"], progress=False)
    toeplitz = papa.constants("toeplitz", encoder).matrices.double().numpy()
    own = scores(toeplitz, "zeros", average)
    assert own["own"] == named["toeplitz"]
    assert own["own-2"] == named["average"] != own["zeros"], "negative control"
    made = len(artifacts(tmp_path / "store", "given"))
    assert scores(average, toeplitz) == {"own": own["own-2"], "own-2": own["own"]}
    assert len(artifacts(tmp_path / "store", "given")) == made == 2, "known by their content"
    for given, said in (
        ([torch.zeros(6, 6, SLOTS, SLOTS)], "have the shape [6, 6, 32, 32], expected [6, 12"),
        ([3], "constants is a int, expected ConstantMatrices, a tensor"),
        (average, "constants is a ConstantMatrices, expected a list of kinds or of matrices"),
    ):
        with pytest.raises(papa.PapaError, match=re.escape(said)):
            own_constants(encoder, given)
    with pytest.raises(papa.PapaError, match=r"'constants\.0\.kind' is 'own'"):
        scores("own", average)
