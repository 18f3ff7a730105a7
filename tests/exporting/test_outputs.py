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
from safetensors.torch import load_file

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


def test_the_folder_lacks_what_those_heads_need_not(small: Case, tmp_path: Path) -> None:
    case = of_kind(small, "mean_output_by_slot")
    model = case.exported(tmp_path / "export")
    kept, whole = (
        load_file(folder / "model.safetensors")
        for folder in (tmp_path / "export", Path(case.reference.folder))
    )
    for layer in range(case.reference.layers):
        own = [h for h in range(case.reference.heads) if (layer, h) not in case.some_heads()]
        for projection in ("query", "key", "value"):
            name = f"encoder.layer.{layer}.attention.self.{projection}.weight"
            by_head = whole[name].unflatten(0, (case.reference.heads, -1))
            assert torch.equal(kept[name], by_head[own].flatten(0, 1))
    expected = states_of(model, case)
    for name, rows in rows_kept(type(model.model)(model.config), model.heads, "mean_output"):
        owner, _, part = name.rpartition(".")
        module = model.model.get_submodule(owner)
        with torch.no_grad():
            getattr(getattr(module, "linear", module), part)[~rows] = 1e3
    assert largest_difference(states_of(model.to("cpu"), case), expected) == 0
    card = (tmp_path / "export" / "README.md").read_text()
    assert "(mean_output_by_slot).\nThose heads need no queries, keys or values;" in card
    assert "unseen_share" not in card


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
    with pytest.raises(ArtifactError, match=r"expected .* in 64 slots: rerun"):
        replace(case, constants=shorter).exported(tmp_path / "export")
