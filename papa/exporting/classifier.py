"""The probe, or the model's own head, that comes along with an export: a classifier of texts or of
their tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from papa.corpora.batches import MicroBatch
from papa.corpora.ragged import offsets_of
from papa.encoders.encoder import Encoder
from papa.exporting.own_head import OwnHead
from papa.probes.packed import PackedFeatures, pack_states
from papa.probes.probes import SequenceProbe, TokenProbe


class Classifier(nn.Module):
    """A probe of one seed, or a model's own head, on the hidden states of a batch."""

    def __init__(self, probe: SequenceProbe | TokenProbe | OwnHead) -> None:
        super().__init__()
        self.probe = probe.requires_grad_(False)

    @classmethod
    def read(
        cls,
        described: Mapping[str, Any],
        weights: Mapping[str, Tensor],
        encoder: Encoder,
        slots: int,
    ) -> Classifier:
        """The classifier that ``papa.json`` describes; the encoder's configuration names its
        labels.
        """
        if name := described.get("own"):
            return cls(OwnHead.read(name, weights, encoder.config))
        labels = [str(label) for label in described["labels"]]
        layers, regression = encoder.layers + 1, bool(described["regression"])
        kind = (
            TokenProbe
            if described["tokens"]
            else partial(SequenceProbe, slots=slots, regression=regression)
        )
        probe = kind([0], layers=layers, width=encoder.width, labels=len(labels))
        probe.load_state_dict(weights)
        config = encoder.config
        config.id2label = dict(enumerate(labels))
        config.label2id = {label: number for number, label in enumerate(labels)}
        config.problem_type = "regression" if regression else "single_label_classification"
        return cls(probe)

    @property
    def labels(self) -> int:
        """How many classes there are."""
        probe = self.probe
        return probe.labels if isinstance(probe, OwnHead) else probe.classifier.bias.shape[-1]

    @property
    def of_tokens(self) -> bool:
        """Whether tokens have labels, not texts."""
        probe = self.probe
        return probe.of_tokens if isinstance(probe, OwnHead) else isinstance(probe, TokenProbe)

    def forward(
        self, layers: Sequence[Float[Tensor, "tokens width"]], batch: MicroBatch
    ) -> Float[Tensor, "texts_or_tokens labels"]:
        """The logits of the batch's texts, or of its tokens, from their hidden states, embeddings
        first.
        """
        if isinstance(self.probe, OwnHead):
            return self.probe(layers[-1], batch)
        values = pack_states(layers, None)
        if isinstance(self.probe, TokenProbe):
            return self.probe(values.flatten(1)[None])[0]
        lengths = np.bincount(batch.inputs_of_tokens.cpu().numpy(), minlength=len(batch.rows))
        features = PackedFeatures(
            values=values,
            offsets=torch.from_numpy(offsets_of(lengths)),
            slot_ids=batch.slot_ids,
            labels=torch.zeros(len(lengths)),
            token_labels=False,
        )
        return self.probe(features, torch.arange(len(lengths))[None])[0]
