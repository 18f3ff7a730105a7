"""What may stand for constant matrices, blocks inside blocks, and tensors that belong to whoever
called.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import papa
from papa.heads.constants import ConstantMatrices, control, derived
from papa.library.encoder import Encoder
from tests.flows.conftest import artifacts
from tests.library.conftest import SLOTS

TEXTS = ["a fine film", "dull, and then it ends", "nothing here is new"]
COSINE: dict[str, Any] = {"label": None, "metric": "cosine", "head": "native"}
EVERY = [(layer, head) for layer in range(6) for head in range(12)]
HALF = EVERY[::2]


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return papa.load_encoder("embedded/all-MiniLM-L6-v2", slots=SLOTS, device="cpu")


@pytest.fixture(scope="module")
def constants(encoder: Encoder) -> ConstantMatrices:
    return papa.average(encoder, TEXTS, progress=False)


def states(encoder: Encoder, *blocks: tuple[Any, Any]) -> Tensor:
    """The last hidden states of the texts with the blocks entered one inside the other."""
    if blocks:
        (matrices, heads), *rest = blocks
        with papa.replaced(encoder, heads, substitute=matrices):
            return states(encoder, *rest)
    return torch.cat(
        [token_states[:, -1] for token_states in papa.features(encoder, TEXTS, progress=False)]
    )


@pytest.mark.parametrize("kind", ["zeros", "identity", "toeplitz", "fibonacci"])
def test_a_control_goes_by_its_name(encoder: Encoder, kind: Any) -> None:
    by_name = papa.constants(encoder, kind)
    assert by_name.matrices.equal(control(kind, 6, 12, SLOTS).matrices)
    assert states(encoder, (kind, HALF)).equal(states(encoder, (by_name, HALF)))
    assert not states(encoder, (kind, HALF)).equal(states(encoder)), "negative control"
    local = papa.constants(encoder, "local", window=1).matrices
    assert local[3, 4].sum(1).tolist() == [2.0, *[3.0] * (SLOTS - 2), 2.0]


def test_matrices_have_a_figure_and_few_lines(
    encoder: Encoder, constants: ConstantMatrices, tmp_path: Path
) -> None:
    first, second, *_ = lines = repr(constants).splitlines()
    assert first == f"<average: 6 layers of 12 heads, {SLOTS} slots"
    assert len(lines) == 5
    assert second.endswith("of the entries seen, in 3 texts at most")
    assert repr(papa.constants(encoder, "zeros")).count("\n") == 1
    figure = papa.average(encoder, TEXTS, progress=False).plot(layer=2, head=7)
    assert set(figure.data["head"]) == {"average: layer 2, head 7"}
    weights = figure.data.pivot(index="from", columns="to", values="weight")
    assert weights.loc["1", "[CLS]"] == pytest.approx(float(constants.matrices[2, 7, 1, 0]))
    figure.save(tmp_path / "head.pdf")
    assert len(set(papa.constants(encoder, "local", window=1).plot(layer=0).data["head"])) == 12
    with pytest.raises(
        papa.PapaError, match=r"no head \(6, 0\): give layer and head from 0, up to \(5, 11"
    ):
        papa.constants(encoder, "zeros").plot(layer=6, head=0)


@pytest.mark.parametrize("texts", [TEXTS, [(text, "second") for text in TEXTS]])
def test_what_is_made_of_an_average(encoder: Encoder, texts: list[Any]) -> None:
    """As the stage of a study makes it, of texts and of pairs."""
    average = papa.average(encoder, texts, progress=False)
    middle = (SLOTS // 2,) if isinstance(texts[0], tuple) else ()
    relative = papa.constants(encoder, "relative", average=average)
    assert relative.matrices.equal(derived("relative", average, (0, *middle, SLOTS - 1)).matrices)
    assert not relative.matrices.equal(derived("relative", average, (0,)).matrices), (
        "negative control"
    )
    low = papa.constants(encoder, "low_rank", average=average, rank=2, largest=0)
    assert low.matrices.equal(derived("low_rank", average, (), rank=2).matrices)
    assert not states(encoder, (low, HALF)).equal(states(encoder, (average, HALF)))


@pytest.mark.parametrize(
    "convert",
    [
        lambda matrices: matrices.double().requires_grad_(),
        lambda matrices: matrices.double().numpy(),
    ],
)
def test_arrays_and_tensors_are_constants(
    encoder: Encoder, constants: ConstantMatrices, convert: Callable[[Tensor], Any]
) -> None:
    converted_states = states(encoder, (convert(constants.matrices.clone()), HALF))
    assert converted_states.equal(states(encoder, (constants, HALF)))
    assert not converted_states.equal(states(encoder, (constants.matrices.flip(1), HALF))), (
        "negative control"
    )


@pytest.mark.parametrize(
    "heads",
    [
        sorted({*EVERY} - {*HALF}),
        [(layer, head) for layer, head in EVERY if layer in (0, 3)],
        HALF[:5],
    ],
    ids=["the other half", "some of them, and others", "some of them alone"],
)
def test_an_inner_block_replaces_further_heads(
    encoder: Encoder, constants: ConstantMatrices, heads: list[tuple[int, int]]
) -> None:
    both = constants.matrices.clone()
    for head in heads:
        both[head] = papa.constants(encoder, "toeplitz").matrices[head]
    union = sorted({*HALF, *heads})
    outer = (constants, HALF)
    inner = ("toeplitz", heads)
    torch.testing.assert_close(
        states(encoder, outer, inner), states(encoder, (both, union)), atol=1e-5, rtol=1e-5
    )
    if heads[0] in HALF:
        difference = states(encoder, inner, outer) - states(encoder, outer, inner)
        assert float(difference.abs().max()) > 1e-3, "negative control: the inner block wins"


def test_an_inner_block_leaves_the_outer_as_it_was(
    encoder: Encoder, constants: ConstantMatrices
) -> None:
    plain = states(encoder)
    outer = states(encoder, (constants, HALF))
    with papa.replaced(encoder, HALF, substitute=constants):
        assert not states(encoder, ("zeros", EVERY)).equal(outer)
        assert states(encoder).equal(outer)
    assert states(encoder).equal(plain)


def test_a_measurement_takes_matrices(
    encoder: Encoder, constants: ConstantMatrices, tmp_path: Path
) -> None:
    """By the names that they have as kinds, or of one's own: the same scores, kept alike."""
    data = {"text": [*TEXTS, "a joy", "so long", "a bore to sit through"]}
    splits = dict.fromkeys(("train", "validation"), data)
    task = papa.Task(**COSINE)
    options: dict[str, Any] = {"keep": [1, 0], "probe_seeds": [0, 1], "orders": ["first_to_last"]}
    options |= {"store": tmp_path / "store", "progress": False}

    def scores(*substitutes: Any) -> dict[str, list[float]]:
        measurement = papa.measure(encoder, splits, task=task, substitutes=substitutes, **options)
        assert ("custom" in str(measurement.table)) == (
            "custom" in set(measurement.results["constants"])
        )
        by_kind = measurement.results.query("fraction == 0").groupby("constants")["score"]
        return by_kind.agg(list).to_dict()

    scores_by_name = scores("toeplitz", "average")
    average = papa.average(encoder, data["text"], progress=False)
    toeplitz = papa.constants(encoder, "toeplitz").matrices.double().numpy()
    scores_by_matrix = scores(toeplitz, "zeros", average)
    assert scores_by_matrix["custom"] == scores_by_name["toeplitz"]
    assert scores_by_matrix["custom-2"] == scores_by_name["average"] != scores_by_matrix["zeros"], (
        "negative control"
    )
    stored_count = len(artifacts(tmp_path / "store", "supplied_matrices"))
    assert scores(average, toeplitz) == {
        "custom": scores_by_matrix["custom-2"],
        "custom-2": scores_by_matrix["custom"],
    }
    assert len(artifacts(tmp_path / "store", "supplied_matrices")) == stored_count == 2, (
        "known by their content"
    )
