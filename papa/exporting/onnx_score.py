"""The task's score of graphs in 8 bits: what onnxruntime computes, as features of the study's
probes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from papa.corpora.batches import MicroBatch
from papa.encoders.encoder import Encoder
from papa.exporting.int8 import Scored, Way
from papa.exporting.model import ExportedEncoder
from papa.exporting.onnx import (
    ONNX,
    ONNX_INT8,
    OriginalStates,
    Session,
    example_inputs,
    write_graph,
    write_int8,
)


class GraphFeatures:
    """A graph in place of the encoder that it was written from.

    Args:
        path: the graph, which gives the hidden states of all layers side by side.
        encoder: what it was written from.
    """

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
        return list(self._session.states(inputs)[tokens].split(self.width, dim=-1))


def score_graphs(
    original: nn.Module, exported: ExportedEncoder, scored: Scored
) -> dict[Way, Mapping[str, Any] | None]:
    """The scores of the original and of the export, both in 8 bits in onnxruntime.

    Args:
        original: the unmodified model of ``transformers``, in eval mode, on the CPU.
        exported: likewise on the CPU; as before after the call.
        scored: gives the score of features.
    """
    with TemporaryDirectory() as folder, exported.dense() as dense:
        dense.every = True
        found: dict[Way, Mapping[str, Any] | None] = {}
        modules: dict[Way, nn.Module] = {
            "int8": OriginalStates(original.float(), every=True),
            "both": dense,
        }
        for way, module in modules.items():
            exact, rounded = Path(folder) / ONNX, Path(folder) / ONNX_INT8
            write_graph(module, example_inputs(exported.layout), exact)
            write_int8(exact, rounded)
            found[way] = scored(GraphFeatures(rounded, exported.encoder), False)
        return found
