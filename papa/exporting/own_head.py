"""A model's own head in an export: classes from the encoder's hidden states, as the model itself
gives them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import transformers
from jaxtyping import Float
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutputWithPooling

from papa.corpora.batches import MicroBatch
from papa.encoders.weights import sharing_weights
from papa.errors import ArtifactError

CLASSES = ("AutoModelForSequenceClassification", "AutoModelForTokenClassification")
"""The classes of transformers whose heads come along."""


class _Given(nn.Module):
    """Stands for a model's encoder: gives the hidden states that it was given, pooled by its own
    pooler.
    """

    def __init__(self, encoder: Any) -> None:
        super().__init__()
        self.pooler = getattr(encoder, "pooler", None)
        self._activation = getattr(encoder, "pooler_activation", None)
        self.states: Tensor | None = None

    def forward(self, *_: object, **__: object) -> BaseModelOutputWithPooling:
        states, pooled = self.states, None
        assert states is not None
        if self.pooler is not None:
            # ALBERT's is a linear map and an activation.
            pooled = self._activation(self.pooler(states[:, 0])) if self._activation else None
            pooled = self.pooler(states) if pooled is None else pooled
        return BaseModelOutputWithPooling(last_hidden_state=states, pooler_output=pooled)


class OwnHead(nn.Module):
    """What a model puts on its encoder.

    Args:
        model: of one of ``CLASSES``; it stays as it is.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        model = sharing_weights(model)
        encoder = getattr(model, model.base_model_prefix)
        setattr(model, model.base_model_prefix, _Given(encoder))
        self.model = model.eval()
        self.labels: int = model.config.num_labels
        self.of_tokens = type(model).__name__.endswith("ForTokenClassification")

    @classmethod
    def read(cls, name: str, weights: Mapping[str, Tensor], config: Any) -> OwnHead:
        """The head whose weights these are.

        Raises:
            ArtifactError: it is of another class.
        """
        if name not in CLASSES:
            raise ArtifactError(f"a head of class '{name}' is not known: export the encoder again")
        with torch.device("meta"):
            found = cls(getattr(transformers, name).from_config(config))
        found.load_state_dict(weights, assign=True)
        return found

    def forward(
        self, states: Float[Tensor, "tokens width"], batch: MicroBatch
    ) -> Float[Tensor, "texts_or_tokens labels"]:
        """The logits of the batch's texts, or of its tokens, from its last hidden states."""
        at = batch.inputs_of_tokens, batch.positions_in_input
        shape = len(batch.rows), int(batch.positions_in_input.max()) + 1
        mask = torch.zeros(shape, dtype=torch.long, device=states.device)
        mask[at] = 1
        padded = states.new_zeros(*shape, states.shape[-1])
        given = getattr(self.model, self.model.base_model_prefix)
        given.states = padded.index_put(at, states)
        logits: Tensor = self.model(input_ids=mask, attention_mask=mask).logits
        given.states = None
        return logits[at] if self.of_tokens else logits
