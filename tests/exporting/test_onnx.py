"""The ONNX form of an exported encoder gives the exported encoder's hidden states in onnxruntime."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import jaxtyping
import numpy as np
import pytest
import torch

import papa
from papa.errors import EncoderError
from papa.exporting import ExportedEncoder, export_encoder
from papa.exporting.onnx import ONNX, check_onnx, write_onnx
from papa.exporting.writing import TOLERANCE
from tests.encoders.models import random_model
from tests.exporting.conftest import Case

onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: run 'make setup'")
pytest.importorskip("onnxscript", reason="onnxscript is not installed: run 'make setup'")


@pytest.fixture(scope="module", autouse=True)
def _sizes_may_be_symbols() -> Iterator[None]:
    """While a graph is traced, sizes are symbols, which the tests' check of signatures takes for no ints."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def in_onnxruntime(path: Path, inputs: dict[str, torch.Tensor]) -> np.ndarray:
    session = onnxruntime.InferenceSession(path)
    names = [one.name for one in session.get_inputs()]
    (states,) = session.run(None, {name: inputs[name].numpy() for name in names})
    return np.asarray(states)


def largest_difference(model: ExportedEncoder, path: Path, inputs: dict[str, torch.Tensor]) -> float:
    expected = model(**inputs).last_hidden_state.numpy()
    return float(np.abs(in_onnxruntime(path, inputs) - expected).max() / np.abs(expected).max())


@pytest.fixture(scope="module")
def folder(make_case: Callable[..., Case], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MiniLM exported with its ONNX form."""
    case, place = make_case("minilm", "text"), tmp_path_factory.mktemp("onnx") / "export"
    export_encoder(
        case.reference, case.constants, case.some_heads(), case.layout, place, examples=case.split, onnx=True
    )
    return place


def test_real_text_in_batches_of_any_shape(make_case: Callable[..., Case], folder: Path) -> None:
    model = papa.load_exported(folder)
    (texts,) = make_case("minilm", "text").texts
    for batch in (texts, texts[:1], texts[3:4], [*texts, "a longer one than all of the others, by far: " * 5]):
        inputs = dict(model.tokenizer(batch, padding=True, return_tensors="pt"))
        assert largest_difference(model, folder / ONNX, inputs) <= TOLERANCE


def test_other_heads_give_other_states(make_case: Callable[..., Case], folder: Path, tmp_path: Path) -> None:
    case = make_case("minilm", "text")
    export_encoder(case.reference, case.constants, case.some_heads()[1:], case.layout, tmp_path / "other")
    other = papa.load_exported(tmp_path / "other")
    inputs = dict(other.tokenizer(*case.texts, padding=True, return_tensors="pt"))
    assert largest_difference(other, folder / ONNX, inputs) > 10 * TOLERANCE


def test_what_is_too_long_is_refused(folder: Path) -> None:
    model = papa.load_exported(folder)
    inputs = dict(model.tokenizer(["word " * 70], return_tensors="pt"))
    with pytest.raises(onnxruntime.capi.onnxruntime_pybind11_state.InvalidArgument, match="out of data bounds"):
        in_onnxruntime(folder / ONNX, inputs)


def test_the_card_says_how_fast_and_how(folder: Path) -> None:
    card = (folder / "README.md").read_text()
    assert "| Speed in onnxruntime, batch 5 × " in card
    assert 'onnxruntime.InferenceSession("this-folder/model.onnx")' in card
    assert ONNX in (folder / "papa.json").read_text(), "its digest is checked, too"


@pytest.mark.parametrize(("family", "kind"), [("electra", "pair"), ("roberta", "pair")])
def test_two_texts(make_case: Callable[..., Case], tmp_path: Path, family: str, kind: str) -> None:
    case = make_case(family, kind)
    export_encoder(case.reference, case.constants, case.some_heads(), case.layout, tmp_path / "export")
    model = papa.load_exported(tmp_path / "export")
    write_onnx(model, tmp_path / ONNX)
    inputs = dict(model.tokenizer(*case.texts, padding=True, return_tensors="pt"))
    assert largest_difference(model, tmp_path / ONNX, inputs) <= TOLERANCE
    swapped = dict(model.tokenizer(*reversed(case.texts), padding=True, return_tensors="pt"))
    width = min(swapped["input_ids"].shape[1], inputs["input_ids"].shape[1])
    found, other = (in_onnxruntime(tmp_path / ONNX, one)[:, :width] for one in (inputs, swapped))
    assert np.abs(found - other).max() > 10 * TOLERANCE, "the order of the texts counts"


def test_what_has_no_exact_form_is_refused(make_case: Callable[..., Case]) -> None:
    layout = make_case("electra", "pair").layout
    config = random_model("electra").config
    with pytest.raises(EncoderError, match="segment_ids: stay"):
        check_onnx(config, replace(layout, segment_ids="stay"), 1)
    with pytest.raises(EncoderError, match="convolution over slots"):
        check_onnx(random_model("deberta_v2_xlarge").config, layout, 1)
    with pytest.raises(EncoderError, match="an ONNX file holds"):
        check_onnx(config, layout, 2**31)
    check_onnx(config, layout, 2**31 - 1)
