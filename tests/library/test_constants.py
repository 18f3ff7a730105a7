"""What may stand for constant matrices, and blocks inside blocks."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

import papa
from papa.heads.constants import ConstantMatrices, control, derived
from papa.library.encoder import Encoder
from tests.flows.conftest import artifacts
from tests.library.conftest import SLOTS

TEXTS = ["a fine film", "dull, and then it ends", "nothing here is new"]
EVERY = [(layer, head) for layer in range(6) for head in range(12)]
HALF = EVERY[::2]


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return papa.load_encoder("embedded/all-MiniLM-L6-v2", slots=SLOTS, device="cpu")


@pytest.fixture(scope="module")
def constants(encoder: Encoder) -> ConstantMatrices:
    return papa.average(encoder, TEXTS, progress=False)


def states(encoder: Encoder, *blocks: tuple[object, Sequence[tuple[int, int]]]) -> Tensor:
    """The last hidden states of the texts with the blocks entered one inside the other."""
    if blocks:
        (matrices, heads), *rest = blocks
        with papa.replaced(encoder, heads, substitute=matrices):
            return states(encoder, *rest)
    texts = papa.features(encoder, TEXTS, progress=False)
    return torch.cat([token_states[:, -1] for token_states in texts])


@pytest.mark.parametrize("kind", ["zeros", "identity", "toeplitz", "fibonacci"])
def test_a_control_goes_by_its_name(encoder: Encoder, kind: str) -> None:
    by_name = papa.constants(encoder, kind)
    assert by_name.matrices.equal(control(kind, 6, 12, SLOTS).matrices)
    assert states(encoder, (kind, HALF)).equal(states(encoder, (by_name, HALF)))
    assert not states(encoder, (kind, HALF)).equal(states(encoder)), "negative control"
    local = papa.constants(encoder, "local", window=1).matrices
    assert local[3, 4].sum(1).tolist() == [2.0, *[3.0] * (SLOTS - 2), 2.0]


def test_a_figure_has_the_weights_of_its_head(constants: ConstantMatrices, tmp_path: Path) -> None:
    figure = constants.plot(layer=2, head=7)
    weights = figure.data.pivot(index="from", columns="to", values="weight")
    assert weights.loc["1", "[CLS]"] == pytest.approx(float(constants.matrices[2, 7, 1, 0]))
    figure.save(tmp_path / "head.pdf")
    assert len(set(constants.plot(layer=0).data["head"])) == 12
    with pytest.raises(papa.PapaError, match="layer"):
        constants.plot(head=0)


@pytest.mark.parametrize("texts", [TEXTS, [(text, "second") for text in TEXTS]])
def test_matrices_are_derived_from_an_average(encoder: Encoder, texts: list[object]) -> None:
    average = papa.average(encoder, texts, progress=False)
    middle = (SLOTS // 2,) if isinstance(texts[0], tuple) else ()
    relative = papa.constants(encoder, "relative", average=average)
    assert relative.matrices.equal(derived("relative", average, (0, *middle, SLOTS - 1)).matrices)
    assert not relative.matrices.equal(derived("relative", average, (0,)).matrices), "control"
    low = papa.constants(encoder, "low_rank", average=average, rank=2, largest=0)
    assert low.matrices.equal(derived("low_rank", average, (), rank=2).matrices)
    assert not states(encoder, (low, HALF)).equal(states(encoder, (average, HALF)))


def test_what_a_derived_kind_knows_counts_as_seen(encoder: Encoder) -> None:
    average = papa.average(encoder, ["short"], progress=False)
    assert not average.seen.all(), "slots of no text"
    relative = papa.constants(encoder, "relative", average=average)
    known = (relative.matrices > 0).any(dim=0).any(dim=0)
    assert (known & ~average.seen).any(), "by its distance from slots that a text had"
    assert relative.seen.equal(average.seen | known)


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


def test_supplied_matrices_have_the_scores_of_their_kind(
    encoder: Encoder, constants: ConstantMatrices, tmp_path: Path
) -> None:
    data = {"text": [*TEXTS, "a joy", "so long", "a bore to sit through"]}

    def scores(*substitutes: object) -> dict[str, list[float]]:
        measurement = papa.measure(
            encoder,
            {"train": data, "validation": data},
            task=papa.Task(label=None, metric="cosine", head="native"),
            substitutes=substitutes,
            orders=["first_to_last"],
            keep=[1, 0],
            probe_seeds=[0, 1],
            store=tmp_path / "store",
            progress=False,
        )
        by_kind = measurement.results.query("fraction == 0").groupby("constants")["score"]
        return by_kind.agg(list).to_dict()

    by_name = scores("toeplitz")
    average = papa.average(encoder, data["text"], progress=False)
    toeplitz = papa.constants(encoder, "toeplitz").matrices.double().numpy()
    supplied = scores(toeplitz, "zeros", average)
    assert supplied["custom"] == by_name["toeplitz"] != supplied["zeros"], "negative control"
    scores(average, toeplitz)
    assert len(artifacts(tmp_path / "store", "supplied_matrices")) == 2, "known by their content"
