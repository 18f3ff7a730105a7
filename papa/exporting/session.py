"""Graphs in onnxruntime: called like a model, and as features of a study's probes."""

from __future__ import annotations

from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from papa.corpora.batches import MicroBatch
from papa.encoders.encoder import Encoder


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
