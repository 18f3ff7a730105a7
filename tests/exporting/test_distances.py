"""An export by distance is the model under ``papa.ablated(by="relative")``, for texts of any length
that the encoder has positions for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

import papa
from papa.ablation.substitutes import ByDistance
from papa.corpora.tokens import special_tokens_of
from papa.encoders.encoder import load_encoder
from papa.encoders.reference import load_tokenizer
from papa.errors import ArtifactError, DataError
from papa.exporting import InputLayout
from papa.exporting.distances import average_by_distance
from papa.exporting.placement import ordinary_inputs
from papa.library.ablating import substitute_for
from papa.probes.own_model import load_own
from tests.exporting.conftest import FIRST, SLOTS, Case

TOLERANCE = 1e-5


def in_place(case: Case) -> Case:
    """The case with constants by distance."""
    layout = InputLayout.in_place(
        "pair" if len(case.texts) == 2 else "text",
        case.reference.positions,
        special_tokens_of(load_tokenizer(case.reference)),
    )
    constants = average_by_distance(load_encoder(case.reference), case.split, layout)
    return replace(case, layout=layout, constants=constants)


def own_states(
    model: PreTrainedModel,
    heads: list[tuple[int, int]],
    by: ByDistance,
    inputs: dict[str, torch.Tensor],
) -> torch.Tensor:
    with papa.ablated(model, heads, by=by), torch.no_grad():
        return model(**inputs).last_hidden_state[inputs["attention_mask"].bool()]


@pytest.mark.parametrize(
    ("family", "kind"),
    [("minilm", "text"), ("minilm", "pair"), ("roberta", "pair"), ("electra", "text")],
)
def test_equals_the_model_under_ablated(
    make_case: Callable[..., Case], tmp_path: Path, family: str, kind: str
) -> None:
    case = in_place(make_case(family, kind))
    model = load_own(case.reference, "AutoModel")
    seen = ordinary_inputs(case.split, case.split.rows, case.layout)
    learned = substitute_for(model, "relative", data=[seen])
    assert isinstance(learned, ByDistance)
    assert torch.allclose(learned.weights, case.constants.weights, atol=1e-6)
    assert torch.allclose(learned.ends, case.constants.ends, atol=1e-6)

    heads = case.some_heads()
    exported = case.exported(tmp_path / "to", heads, examples=case.split)
    times = 20 if case.reference.positions > SLOTS else 1
    texts = [[" ".join([text] * times) for text in one] for one in case.texts]
    inputs = dict(exported.tokenizer(*texts, padding=True, truncation=True, return_tensors="pt"))
    if case.reference.positions > SLOTS:
        assert inputs["input_ids"].shape[1] > 2 * SLOTS, "longer than the study's slots"
    found = exported(**inputs).last_hidden_state[inputs["attention_mask"].bool()]
    expected = own_states(model, heads, learned, inputs)
    assert float((found - expected).abs().max()) <= TOLERANCE
    others = own_states(model, heads[:-1], learned, inputs)
    flat = ByDistance(torch.ones_like(learned.weights), torch.ones_like(learned.ends))
    for other in (others, own_states(model, heads, flat, inputs)):
        assert float((found - other).abs().max()) > 100 * TOLERANCE
    inputs.pop("token_type_ids", None)
    again = exported(**inputs).last_hidden_state[inputs["attention_mask"].bool()]
    assert torch.equal(again, found), "segments are those that the tokenizer gives"


@pytest.mark.parametrize("family", ["mpnet", "deberta_v3"])
def test_a_family_of_its_own_routing_is_averaged_and_exported(
    make_case: Callable[..., Case], tmp_path: Path, family: str
) -> None:
    """``papa.ablated`` does not reach all of these; the export is compared when it is written."""
    case = in_place(make_case(family, "text"))
    assert bool(case.constants.weights.isfinite().all())
    assert float(case.constants.weights.abs().max()) > 0
    heads = case.some_heads()
    exported = case.exported(tmp_path / "to", heads, examples=case.split)
    together = exported(**exported.tokenizer(FIRST, padding=True, return_tensors="pt"))
    for row, text in enumerate(FIRST):
        alone = exported(**exported.tokenizer([text], return_tensors="pt")).last_hidden_state[0]
        difference = together.last_hidden_state[row, : len(alone)] - alone
        assert float(difference.abs().max()) <= TOLERANCE


def test_an_encoder_with_local_layers_is_refused(make_case: Callable[..., Case]) -> None:
    """``papa.ablated`` masks what lies beyond the window; passes by distance know no mask."""
    with pytest.raises(ArtifactError, match="sees only a window around it"):
        in_place(make_case("modernbert", "text"))


def test_what_no_text_of_the_average_had_is_counted(small: Case, tmp_path: Path) -> None:
    case = in_place(small)
    exported = case.exported(tmp_path / "to")
    exported(**exported.tokenizer(FIRST, padding=True, return_tensors="pt"))
    assert exported.unseen_share == 0
    longer = [" ".join([text] * 3) for text in FIRST]
    exported(**exported.tokenizer(longer, padding=True, return_tensors="pt"))
    assert 0 < exported.unseen_share < 1


def test_refuses_what_does_not_fit(small: Case, tmp_path: Path) -> None:
    case = in_place(small)
    exported = case.exported(tmp_path / "to")
    inputs = exported.tokenizer([" ".join(FIRST * 5)], return_tensors="pt")
    with pytest.raises(DataError, match=f"encoder has positions for {case.reference.positions}"):
        exported(**inputs)
    card = (tmp_path / "to" / "README.md").read_text()
    assert "Constants go by the distance between two tokens" in card
    assert "no limit of S slots" in card
