"""The study's probe, or the model's own head, that comes along with an export: a classifier of
texts or of their tokens, which answers as in the study.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
import transformers
from jaxtyping import Bool, Float
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutputWithPooling

from papa.corpora.batches import MicroBatch
from papa.corpora.ragged import offsets_of
from papa.corpora.split import TokenisedSplit
from papa.corpora.tokens import IGNORED
from papa.encoders.encoder import Encoder
from papa.encoders.weights import sharing_weights
from papa.errors import ArtifactError
from papa.exporting.placement import InputLayout, ordinary_inputs, reproducible_rows
from papa.probes.packed import PackedFeatures, pack_states
from papa.probes.probes import Probe, SequenceProbe, TokenProbe
from papa.scores.metrics import scored
from papa.spec import Metric

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
    """What a model of one of ``CLASSES``, which stays as it is, puts on its encoder."""

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
        """The head of a class of that name whose weights these are."""
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


class Classifier(nn.Module):
    """A probe of one seed, or a model's own head, of so many labels, on the hidden states of a
    batch; of its tokens or its texts.
    """

    def __init__(self, probe: SequenceProbe | TokenProbe | OwnHead) -> None:
        super().__init__()
        self.probe = probe.requires_grad_(False)
        if isinstance(probe, OwnHead):
            self.labels, self.of_tokens = probe.labels, probe.of_tokens
        else:
            self.labels = probe.classifier.bias.shape[-1]
            self.of_tokens = isinstance(probe, TokenProbe)

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


_ROWS = 32
"""Texts that are classified at a time."""


@dataclass(frozen=True)
class TrainedProbe:
    """A probe as the study trained it with one seed, and what it found of each validation row, as
    ``papa.scores.metrics.scored`` has it, float64 [rows, k]. There is one label for a number.
    """

    probe: Probe
    seed: int
    labels: tuple[str, ...]
    metric: Metric
    positive: int
    examples: np.ndarray

    def described(self) -> dict[str, Any]:
        """What ``papa.json`` says of it."""
        return {
            "tokens": isinstance(self.probe, TokenProbe),
            "regression": self.metric == "spearman",
            "labels": list(self.labels),
            "seed": self.seed,
        }

    def same(
        self, found: np.ndarray, split: TokenisedSplit, rows: np.ndarray
    ) -> Bool[np.ndarray, " rows"]:
        """Which rows are answered as in the study; answers are found one after the other."""
        labels, lengths = split.labels_of(rows), None
        if split.label_per_token:
            labels, lengths = labels[labels != IGNORED], split.probed_lengths[split.index_of(rows)]
        own = scored(self.metric, found, labels, self.labels, lengths, self.positive).examples
        theirs = self.examples[split.index_of(rows)]
        return np.isclose(own, theirs, rtol=1e-3, atol=1e-3).all(axis=1)


@dataclass(frozen=True)
class OwnClassifier:
    """A model's own head, of a class of transformers, and what the study found of each validation
    row: ``logits``, and ``lengths``.
    """

    probe: OwnHead
    name: str
    labels: tuple[str, ...]
    answers: Mapping[str, np.ndarray]

    def described(self) -> dict[str, Any]:
        return {"tokens": self.probe.of_tokens, "labels": list(self.labels), "own": self.name}

    def same(
        self, found: np.ndarray, split: TokenisedSplit, rows: np.ndarray
    ) -> Bool[np.ndarray, " rows"]:
        logits, ends = self.answers["logits"], self.answers["lengths"].cumsum()
        expected = np.split(logits[:, 0] if self.probe.labels == 1 else logits.argmax(1), ends[:-1])
        theirs = [expected[place] for place in split.index_of(rows)]
        own = np.split(found, np.cumsum([len(one) for one in theirs])[:-1])
        return np.array(
            [np.allclose(*both, rtol=1e-3, atol=1e-3) for both in zip(own, theirs, strict=True)]
        )


@torch.inference_mode()
def agreement(
    exported: nn.Module,
    trained: TrainedProbe | OwnClassifier,
    split: TokenisedSplit,
    layout: InputLayout,
) -> dict[str, Any]:
    """On how many validation rows the exported folder answers as in the study."""
    rows = reproducible_rows(split, layout)
    parts = np.array_split(rows, -(-len(rows) // _ROWS))
    found = np.concatenate([_answers(exported, split, part, layout) for part in parts])
    same = trained.same(found, split, rows)
    if not same.any():
        raise ArtifactError(
            "the exported classifier answers no validation row as the study's did: report this as "
            "a fault, nothing was written"
        )
    return {"rows": len(rows), "same": int(same.sum())}


def _answers(
    exported: nn.Module, split: TokenisedSplit, rows: np.ndarray, layout: InputLayout
) -> np.ndarray:
    """Classes or numbers: of each row, or of each labelled token."""
    inputs = ordinary_inputs(split, rows, layout)
    logits = exported(**inputs).logits.float().cpu()
    if split.label_per_token:
        logits = logits[inputs["attention_mask"].bool()][split.labels_of(rows) != IGNORED]
    regression = logits.shape[-1] == 1
    return (logits[:, 0] if regression else logits.argmax(-1)).numpy()
