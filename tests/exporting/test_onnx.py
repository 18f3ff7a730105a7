"""The ONNX form of an exported encoder gives the exported encoder's hidden states
in onnxruntime.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from pathlib import Path

import pytest
import torch

import papa
from papa.attention.constants import ConstantMatrices
from papa.corpora.batches import micro_batch
from papa.corpora.tokens import Framing
from papa.encoders.encoder import Encoder
from papa.errors import EncoderError
from papa.exporting import ExportedEncoder, InputLayout
from papa.exporting.measuring import TOLERANCE
from papa.exporting.onnx import ONNX, ONNX_INT8, GraphFeatures, Graphs, Session, check_onnx
from papa.spec.values import RESAMPLED
from tests.encoders.models import MODELS, random_model
from tests.exporting.conftest import SLOTS, Case
from tests.exporting.test_distances import in_place
from tests.exporting.test_outputs import of_kind

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: run 'make setup'")
pytest.importorskip("onnxscript", reason="onnxscript is not installed: run 'make setup'")

# While a graph is traced, sizes are symbols, which the check of signatures takes for no ints.
pytestmark = pytest.mark.unchecked

CONVOLUTION = "deberta_v2_xlarge"


def largest_difference(
    model: ExportedEncoder, path: Path, inputs: dict[str, torch.Tensor]
) -> float:
    expected = model(**inputs).last_hidden_state.detach()
    return float((Session(path).states(inputs) - expected).abs().max() / expected.abs().max())


def written(model: ExportedEncoder, folder: Path) -> Graphs:
    with model.dense() as dense:
        return Graphs(dense, model.layout, folder / "graphs")


@pytest.fixture(scope="module")
def folder(small: Case, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small encoder exported with its ONNX form."""
    place = tmp_path_factory.mktemp("onnx") / "export"
    small.export(place, examples=small.split, onnx=True, int8=lambda *_: None)
    return place


def test_batches_of_any_shape(small: Case, folder: Path) -> None:
    model = papa.load_exported(folder)
    (texts,) = small.texts
    for batch in (texts, texts[:1], texts[3:4], [*texts, " ".join(["facts"] * 60)]):
        inputs = dict(model.tokenizer(batch, padding=True, return_tensors="pt"))
        assert largest_difference(model, folder / ONNX, inputs) <= TOLERANCE


def test_the_graph_holds_constant_heads_alone(small: Case, folder: Path) -> None:
    from onnx import load

    shapes = [tuple(tensor.dims) for tensor in load(folder / ONNX).graph.initializer]
    held = sum(prod(shape[:-2]) for shape in shapes if shape[-2:] == (SLOTS, SLOTS))
    assert held == len(small.some_heads()) < len(small.every_head())


def test_other_heads_give_other_states(small: Case, folder: Path, tmp_path: Path) -> None:
    other = small.exported(tmp_path / "other", small.some_heads()[1:])
    inputs = small.tokens(other)
    assert largest_difference(other, folder / ONNX, inputs) > 10 * TOLERANCE


def test_what_is_too_long_is_refused(folder: Path) -> None:
    model = papa.load_exported(folder)
    inputs = dict(model.tokenizer([" ".join(["facts"] * 63)], return_tensors="pt"))
    with pytest.raises(Exception, match="invalid index found"):
        Session(folder / ONNX).states(inputs)


def test_the_card_says_how_fast_and_how(folder: Path) -> None:
    card = (folder / "README.md").read_text()
    assert "| Speed in onnxruntime, 1 text × " in card
    assert 'onnxruntime.InferenceSession("this-folder/model.onnx")' in card
    assert ONNX in (folder / "papa.json").read_text(), "its digest is checked, too"


def test_the_graph_in_8_bits(small: Case, folder: Path) -> None:
    """It differs from the graph by the rounding alone, and the card says what that costs."""
    model = papa.load_exported(folder)
    inputs = small.tokens(model)
    assert 10 * TOLERANCE < largest_difference(model, folder / ONNX_INT8, inputs) < 0.1
    assert "model.int8.onnx" in (folder / "papa.json").read_text()
    card = (folder / "README.md").read_text()
    assert "## Int8 beside constant heads, in onnxruntime" in card
    assert "| Which one" not in card, "nothing was scored"


def test_constants_by_distance(small: Case, tmp_path: Path) -> None:
    case = in_place(small)
    model = case.exported(tmp_path / "export")
    longer = [" ".join([text] * 3) for text in case.texts[0]]
    inputs = dict(model.tokenizer(longer, padding=True, return_tensors="pt"))
    assert largest_difference(model, written(model, tmp_path).last, inputs) <= TOLERANCE


def random_constants(layers: int, heads: int, slots: int) -> ConstantMatrices:
    matrices = (4 * torch.randn(layers, heads, slots, slots)).softmax(dim=-1)
    return ConstantMatrices(matrices, torch.ones(slots, slots, dtype=torch.bool), "average")


@pytest.mark.parametrize("texts", [1, 2])
@pytest.mark.parametrize("family", sorted(MODELS.keys() - {CONVOLUTION}))
def test_the_dense_form_of_every_family(family: str, texts: int) -> None:
    """What ONNX holds, before it is a graph: the hidden states of inputs of unlike lengths, in one
    padded batch.
    """
    model, slots = random_model(family).float(), 32
    layers, heads = model.config.num_hidden_layers, model.config.num_attention_heads
    longest = (slots - 2,) if texts == 1 else (slots // 2 - 1, slots // 2 - 2)
    layout = InputLayout(texts, slots, longest, "follow", Framing(2, 3, 0, 1, (0, 0, 0)))
    constants = random_constants(layers, heads, slots)
    some = [
        (layer, head)
        for layer in range(layers)
        for head in range(heads)
        if layer == 1 or (layer + head) % 2
    ]
    exported = ExportedEncoder(Encoder(model), constants, some, layout)
    rows = [_input(length, texts) for length in (3, 12, 1, 7)]
    width = max(map(len, rows))
    inputs = {
        "input_ids": torch.tensor([row + [0] * (width - len(row)) for row in rows]),
        "attention_mask": torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows]),
    }
    expected = exported(**inputs).last_hidden_state
    with exported.dense() as dense:
        found = dense(**inputs)[0]
    other = ExportedEncoder(Encoder(model), constants, some[1:], layout)(**inputs).last_hidden_state
    size = expected.abs().max()
    assert float((found - expected).abs().max() / size) <= TOLERANCE
    assert float((found - other).abs().max() / size) > 10 * TOLERANCE


def _input(length: int, texts: int) -> list[int]:
    first, second = (list(range(start, start + length)) for start in (10, 40))
    return [2, *first, 3] if texts == 1 else [2, *first, 3, *second[: length // 2 + 1], 3]


def test_what_has_no_exact_form_is_refused(make_case: Callable[..., Case]) -> None:
    layout = make_case("electra", "pair").layout
    config = random_model("electra").config
    with pytest.raises(EncoderError, match="segment_ids: stay"):
        check_onnx(config, replace(layout, segment_ids="stay"), 1)
    with pytest.raises(EncoderError, match="convolution over slots"):
        check_onnx(random_model(CONVOLUTION).config, layout, 1)
    with pytest.raises(EncoderError, match="an ONNX file holds"):
        check_onnx(config, layout, 2**31)
    check_onnx(config, layout, 2**31 - 1)


@pytest.mark.parametrize(
    ("family", "kind", "constants"),
    [("electra", "pair", RESAMPLED), ("roberta", "pair", None), ("deberta_v3", "text", None)],
)
def test_a_graph_serves_probes_the_layers_of_its_encoder(
    make_case: Callable[..., Case], family: str, kind: str, constants: str | None, tmp_path: Path
) -> None:
    """Every layer's hidden states of the corpus's own batches, the graph's placing included; and
    every relative position, as those that occur depend on the inputs.
    """
    case = make_case(family, kind)
    if constants is not None:
        case = of_kind(case, constants)
    heads = case.some_heads()
    exported = case.exported(tmp_path / "export", heads)
    inputs = case.tokens(exported)
    before = exported(**inputs).last_hidden_state
    graphs = written(exported, tmp_path)
    assert largest_difference(exported, graphs.last, inputs) <= TOLERANCE
    assert torch.equal(before, exported(**inputs).last_hidden_state), "the encoder is as it was"
    graph = GraphFeatures(graphs.every, exported.encoder)
    found = graph.token_states(micro_batch(case.split, case.split.rows))
    for layer, states in enumerate(case.expected(heads)):
        size = states.abs().max()
        assert float((found[layer] - states).abs().max() / size) <= TOLERANCE
    assert len(found) == layer + 1
    other = case.expected(heads[1:])[-1]
    assert float((found[-1] - other).abs().max() / size) > 10 * TOLERANCE
