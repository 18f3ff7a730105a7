"""Exports of heads with constant outputs: they are the encoder under ``replaced``, without those
heads' values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from pkgutil import resolve_name

import pytest
import torch

from papa.encoders.encoder import load_encoder
from papa.errors import ArtifactError
from papa.exporting.stored import rows_kept
from papa.spec.values import OUTPUTS, RESAMPLED
from tests.encoders.models import MODELS, random_model
from tests.exporting.conftest import Case
from tests.exporting.test_model import TOLERANCE, largest_difference, states_of


def of_kind(case: Case, kind: str) -> Case:
    """The case with constant outputs, of its own texts."""
    encoder, drawn = load_encoder(case.reference), {"seed": 0} if kind == RESAMPLED else {}
    made = resolve_name(OUTPUTS[kind])(encoder, case.split, batch_tokens=256, **drawn)
    return replace(case, constants=made)


@pytest.mark.parametrize(
    ("family", "texts", "kind"),
    [
        ("minilm", "text", "mean_output"),
        ("roberta", "text", "mean_output_by_slot"),
        ("electra", "pair", RESAMPLED),
    ],
)
def test_equals_the_encoder_under_replaced(
    make_case: Callable[..., Case], tmp_path: Path, family: str, texts: str, kind: str
) -> None:
    case = of_kind(make_case(family, texts), kind)
    found = states_of(case.exported(tmp_path / "export"), case)
    assert largest_difference(found, case.expected(case.some_heads())) <= TOLERANCE
    other = "mean_output" if kind != "mean_output" else "mean_output_by_slot"
    for control in (
        case.expected(case.some_heads()[1:]),
        of_kind(case, other).expected(case.some_heads()),
    ):
        assert largest_difference(found, control) > 100 * TOLERANCE


@pytest.mark.parametrize("kind", ["average", "mean_output"])
def test_rows_that_were_left_out_are_never_used(small: Case, tmp_path: Path, kind: str) -> None:
    case = small if kind == "average" else of_kind(small, kind)
    model = case.exported(tmp_path / "export")
    expected = states_of(model, case)
    for name, rows in rows_kept(type(model.model)(model.config), model.heads, kind):
        owner, _, part = name.rpartition(".")
        module = model.model.get_submodule(owner)
        with torch.no_grad():
            # Inside the block a projection wraps the linear map that holds the rows.
            getattr(getattr(module, "linear", module), part)[~rows] = 1e3
    moved = model.to("cpu")  # takes the kept rows anew
    assert largest_difference(states_of(moved, case), expected) == 0


@pytest.mark.parametrize("family", MODELS)
def test_every_family_names_its_values(family: str) -> None:
    """Those with one map for queries, keys and values keep it whole."""
    model = random_model(family).float()
    layers, heads = model.config.num_hidden_layers, model.config.num_attention_heads
    some = [(layer, head) for layer in range(layers) for head in range(heads) if layer + head]
    dropped = dict(rows_kept(model, some, "mean_output")).keys() - dict(
        rows_kept(model, some, "average")
    )
    assert bool(dropped) == (family not in ("modernbert", "deberta", "deberta_near"))
    assert all("v" in name.split(".")[-2] for name in dropped)


def test_outputs_of_other_slots_are_refused(small: Case, tmp_path: Path) -> None:
    case = of_kind(small, "mean_output_by_slot")
    shorter = replace(case.constants, index=case.constants.index[:33, :32])
    with pytest.raises(ArtifactError, match=r"parts do not fit each other"):
        replace(case, constants=shorter).exported(tmp_path / "export")
