"""The plain way of every stage: padded, eager, a matrix for each input, features again for every
epoch and seed.

All its batches have one shape, so a few of them tell what all of them take.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice

import torch
from torch import Tensor, nn

from benchmarks.setting import Setting, model_inputs, padded_batches, plain_model
from benchmarks.timing import Part
from papa.corpora.tokens import IGNORED
from papa.encoders.bert import BERT
from papa.spec.orders import Head
from tests.plain import plainly, with_constants, with_mix

ENCODER_BATCH = 16
"""Rows in a batch where nothing is trained."""
FEW_TOKENS = 5120
"""Tokens, padding included, of the batches that are timed: about as long as our whole
pass takes.
"""
Batch = dict[str, Tensor]


def few_batches(setting: Setting, size: int, work: Callable[[Batch], object]) -> Part:
    """Some batches of the training text, counted as often as all its rows need."""
    few = max(1, FEW_TOKENS // (size * setting.task.slots))
    batches = list(islice(padded_batches(setting, size), few))
    share = len(setting.corpus.split("train")) / sum(len(batch["rows"]) for batch in batches)
    return Part(lambda: [work(batch) for batch in batches], share)


def plain_average(setting: Setting) -> Part:
    """Every matrix of a batch is held: layers × batch × heads × S²."""
    total = [torch.zeros(()), torch.zeros(())]

    @torch.inference_mode()
    def add(batch: Batch) -> None:
        output = plain_model()(**model_inputs(batch), output_attentions=True)
        attentions = torch.stack(output.attentions, dim=1)
        real = batch["attention_mask"].float()
        both = real[:, :, None] * real[:, None, :]
        total[0] = total[0] + (attentions * both[:, None, None]).sum(dim=0)
        total[1] = total[1] + both.sum(dim=0)

    return few_batches(setting, ENCODER_BATCH, add)


def plain_features(setting: Setting) -> Part:
    """All hidden states of all slots, batch after batch."""

    @torch.inference_mode()
    def run(batch: Batch) -> None:
        plain_model()(**model_inputs(batch), output_hidden_states=True)

    return few_batches(setting, ENCODER_BATCH, run)


class PlainProbe:
    """A probe on padded hidden states, one seed: of sequences, or of tokens where tokens have the
    labels.
    """

    def __init__(self, setting: Setting, *others: nn.Parameter) -> None:
        config, labels = plain_model().config, len(setting.corpus.label_names or ())
        layers, width = config.num_hidden_layers + 1, config.hidden_size
        self.by_token = setting.corpus.kind == "words"
        self.weights = nn.Parameter(
            torch.full((layers, setting.task.slots), 1 / setting.task.slots)
        )
        self.dense, self.classifier = nn.Linear(layers * width, width), nn.Linear(width, labels)
        own = [*self.dense.parameters(), *self.classifier.parameters()]
        self.trained = [*others, *own] if self.by_token else [*others, self.weights, *own]
        rate = setting.task.probe.learning_rate
        self.optimizer = torch.optim.AdamW(self.trained, lr=rate, weight_decay=0)

    def step(self, hidden_states: Sequence[Tensor], batch: Batch) -> None:
        """One step of the optimizer on the cross-entropy of a padded batch."""
        if self.by_token:
            pooled = torch.cat(list(hidden_states), dim=-1)
        else:
            real = batch["attention_mask"].float()
            sums = [
                torch.einsum("bs,bsd->bd", w * real, h)
                for w, h in zip(self.weights, hidden_states, strict=True)
            ]
            pooled = torch.cat(sums, dim=-1)
        logits = self.classifier(torch.tanh(self.dense(pooled)))
        loss = nn.functional.cross_entropy(
            logits.flatten(0, -2), batch["labels"].flatten(), ignore_index=IGNORED
        )
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.trained, 1.0)
        self.optimizer.step()


def plain_probing(
    setting: Setting, constants: Tensor | None = None, heads: Sequence[Head] = ()
) -> Part:
    """One epoch of one seed: the frozen encoder runs again, the probe takes its steps."""
    model, probe = plain_model(), PlainProbe(setting)

    def train(batch: Batch) -> None:
        matrices = torch.empty(0) if constants is None else constants
        change = with_constants(matrices, heads, batch["attention_mask"])
        with torch.no_grad(), plainly(BERT.attentions(model) if heads else [], change):
            states = model(**model_inputs(batch), output_hidden_states=True).hidden_states
        probe.step(states, batch)

    return few_batches(setting, setting.task.probe.batch_size, train)


def plain_ranking(setting: Setting, constants: Tensor) -> Part:
    """One epoch of λ, the mix written out for every input."""
    model = plain_model()
    theta = nn.Parameter(
        torch.zeros(model.config.num_hidden_layers, model.config.num_attention_heads)
    )
    probe = PlainProbe(setting, theta)

    def train(batch: Batch) -> None:
        with plainly(
            BERT.attentions(model), with_mix(constants, theta.sigmoid(), batch["attention_mask"])
        ):
            states = model(**model_inputs(batch), output_hidden_states=True).hidden_states
        probe.step(states, batch)

    return few_batches(setting, setting.task.probe.batch_size, train)
