"""An exported encoder as an ONNX graph: written, compared with the encoder, and timed in
onnxruntime.
"""

from __future__ import annotations

import logging
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from papa.corpora.batches import MicroBatch
from papa.corpora.split import TokenisedSplit
from papa.encoders.encoder import Encoder
from papa.errors import EncoderError
from papa.exporting.measuring import Scored, Way, check_graph_same, compared, timings
from papa.exporting.model import ExportedEncoder
from papa.exporting.placement import InputLayout

ONNX, ONNX_INT8 = "model.onnx", "model.int8.onnx"
_OUTPUT = "last_hidden_state"
_PACKAGES = ("onnx", "onnxscript", "onnxruntime")
_LARGEST = 2**31
"""Bytes that one file of the format can hold."""
_TRACED = (3, 9)
"""Inputs and tokens in an example: numbers that occur nowhere else, so that none is taken for a
constant.
"""


def check_onnx(config: Any, layout: InputLayout, weights: int) -> None:
    """Refuse what cannot be written as ONNX."""
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        raise EncoderError(f"ONNX needs {', '.join(missing)}: pip install 'papa-attention[onnx]'")
    if layout.texts == 2 and layout.segment_ids == "stay" and any(layout.framing.segments):
        raise EncoderError(
            "under layout.segment_ids: stay a token's segment depends on where padding was, which "
            "the ONNX form does not know: export without --onnx, or from a study with "
            "segment_ids: follow"
        )
    if getattr(config, "conv_kernel_size", 0):
        raise EncoderError(
            "this DeBERTa has a convolution over slots, which has no ONNX form here: export "
            "without --onnx"
        )
    if weights >= _LARGEST:
        raise EncoderError(
            f"its weights take {weights / 1e9:.1f} GB and an ONNX file holds {_LARGEST / 1e9:.1f}: "
            "export without --onnx"
        )


class Graphs:
    """A module, which gives the hidden states of all layers, the last first, as graphs in a folder:
    of these last ones, and of all layers; each exact and in 8 bits.

    Inputs are as the tokenizer gives them, padded on the right, of any number and length. Those
    that are too long for the slots read past the end of a table, which onnxruntime refuses.
    """

    def __init__(
        self, module: nn.Module, layout: InputLayout, folder: Path, *, int8: bool = False
    ) -> None:
        folder.mkdir()
        self.last, self.last_int8 = folder / ONNX, folder / ONNX_INT8
        self.every, self.every_int8 = folder / "every.onnx", folder / "every.int8.onnx"
        write_graph(module, example_inputs(layout), self.every)
        _last_alone(self.every, self.last)
        if int8:
            write_int8(self.every, self.every_int8)
            _last_alone(self.every_int8, self.last_int8)


def _last_alone(source: Path, target: Path) -> None:
    """What the last hidden states need of a graph."""
    from onnx import load
    from onnx.utils import extract_model

    names = [given.name for given in load(source).graph.input]
    extract_model(source, target, names, [_OUTPUT])


def write_onnx(
    exported: ExportedEncoder,
    original: nn.Module,
    folder: Path,
    examples: TokenisedSplit | None,
    scored: Scored | None,
) -> dict[str, Any] | None:
    """Write the ONNX form, also in 8 bits where those are scored; where there are examples, what
    both gain in onnxruntime against the original there.
    """
    exported, layout = exported.to("cpu"), exported.layout
    with TemporaryDirectory() as scratch:
        with exported.dense() as dense:
            graphs = Graphs(dense, layout, Path(scratch) / "graphs", int8=scored is not None)
        shutil.copyfile(graphs.last, folder / ONNX)
        if scored is not None:
            shutil.copyfile(graphs.last_int8, folder / ONNX_INT8)
        if examples is None:
            return None
        states = Session(graphs.last).states
        check_graph_same(exported, states, examples)
        plain = OriginalStates(original.float().cpu())
        alone = Graphs(plain, layout, Path(scratch) / "original", int8=scored is not None)
        before = Session(alone.last).states
        found = timings(states, before, examples, layout)
        if scored is None:
            return found
        ways: dict[Way, Graphs] = {"int8": alone, "both": graphs}
        int8 = {way: Session(own.last_int8).states for way, own in ways.items()}
        measured = compared(int8, before, examples, layout)
        for way, own in ways.items():
            features = GraphFeatures(own.every_int8, exported.encoder)
            measured[way]["score"] = scored(features, False)
        return {**found, "int8": measured}


def write_int8(source: Path, target: Path) -> None:
    """A graph's linear maps in 8 bits: weights rounded with a scale for each of their outputs,
    inputs when it runs."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with _quiet():
        quantize_dynamic(
            source,
            target,
            op_types_to_quantize=["MatMul", "Gemm"],
            per_channel=True,
            weight_type=QuantType.QInt8,
        )


class OriginalStates(nn.Module):
    """The hidden states of all layers of a model of transformers, the last first."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        segments = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        found = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            output_hidden_states=True,
            **segments,
        )
        return tuple(reversed(found.hidden_states))


def example_inputs(layout: InputLayout) -> dict[str, Tensor]:
    """Inputs that a graph can be traced with: their values do not matter, but for the framing."""
    framing = layout.framing
    ids = torch.full(_TRACED, framing.sep + 1)
    ids[:, 0], ids[:, -1] = framing.cls, framing.sep
    if layout.texts == 2:
        ids[:, 2 : 2 + framing.between] = framing.sep
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if any(framing.segments):
        inputs["token_type_ids"] = torch.zeros_like(ids)
    return inputs


def write_graph(module: nn.Module, inputs: dict[str, Tensor], path: Path) -> None:
    """Write a module as a graph for any number of inputs of any length; its first output is
    ``last_hidden_state``."""
    any_number = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    with torch.no_grad(), _quiet():
        torch.onnx.export(
            module.eval(),
            kwargs=inputs,
            f=path,
            input_names=list(inputs),
            output_names=[_OUTPUT],
            dynamic_shapes=dict.fromkeys(inputs, any_number),
            dynamo=True,
            external_data=False,
            verbose=False,
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """The exporter says what it looks for and lacks; only what it fails at matters."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


class Session:
    """A graph in onnxruntime, on as many threads as torch has."""

    def __init__(self, path: Path) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        self._session = onnxruntime.InferenceSession(
            path, options, providers=["CPUExecutionProvider"]
        )
        self._names = [given.name for given in self._session.get_inputs()]

    def states(self, inputs: dict[str, Tensor]) -> Tensor:
        """The last hidden states [batch, tokens, width]."""
        return self.every(inputs)[0]

    def every(self, inputs: dict[str, Tensor]) -> list[Tensor]:
        """Those of all layers that the graph has, the last first."""
        found = self._session.run(None, {name: inputs[name].numpy() for name in self._names})
        return [torch.from_numpy(states) for states in found]


class GraphFeatures:
    """A graph of all layers in place of the encoder that it was written from, for probes."""

    def __init__(self, path: Path, encoder: Encoder) -> None:
        self.model, self.config = encoder.model, encoder.config
        self.layers, self.width = encoder.layers, encoder.width
        self.word_embeddings, self.precision = encoder.word_embeddings, encoder.precision
        self.tokens_per_batch, self.device = encoder.tokens_per_batch, torch.device("cpu")
        self._session = Session(path)

    def token_states(self, batch: MicroBatch) -> list[Float[Tensor, "tokens width"]]:
        """The hidden states of the batch's tokens, embeddings first; the graph puts them into slots
        itself.
        """
        tokens = batch.inputs_of_tokens, batch.positions_in_input
        shape = len(batch.rows), int(batch.positions_in_input.max()) + 1
        inputs = {}
        for name, values in (
            ("input_ids", batch.input_ids),
            ("attention_mask", torch.ones_like(batch.input_ids)),
            ("token_type_ids", batch.token_type_ids),
        ):
            inputs[name] = torch.zeros(shape, dtype=torch.int64)
            inputs[name][tokens] = values
        return [states[tokens] for states in reversed(self._session.every(inputs))]
