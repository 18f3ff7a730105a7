"""Passes of a native head under rules: the one place where studies and the library call a model."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import torch
from jaxtyping import Float, Int
from transformers import PreTrainedModel

from papa.errors import NumbersError, joined
from papa.heads.attention_layers import (
    AttentionLayers,
    attention_layers,
    head_count,
    heads_per_kv_group,
)
from papa.heads.interface import routed
from papa.heads.reuse import LayerReuse, reuse_in
from papa.heads.substitutes import Substitute, rules_of
from papa.models.layer import Observe, Observing, Rule
from papa.native.batches import Batch, Inputs, Rows, Texts
from papa.native.losses import ANSWERS, AnswerLosses, Loss
from papa.native.outputs import Answers, answers_of, concatenated
from papa.probes.chunks import chunk_tokens
from papa.probes.training import SummedLoss
from papa.progress import Progress, ignore_progress
from papa.ranking.loss_scores import ExampleValues
from papa.scores.answers import AnswerArrays
from papa.scores.custom import CustomScore
from papa.spec.orders import Head, Unit, head_name, heads_of_units

NOTHING_COUNTS = (
    "data holds no token that counts: give longer texts, or labels that are not all -100"
)


@dataclass(frozen=True)
class NativeHead:
    """A model with its native head, its texts and its loss.

    What is scored and replaced are units (layer, unit): heads, or groups of heads that share keys
    and values. A layer is an index of ``layers.modules``, those with attention.

    Attributes:
        model: Of transformers, in eval mode.
        texts: What it is called with.
        loss: Of its answers.
        score: The user's own, which replaces its answers.
        part: The part of the model whose heads these are, as of ``attention_layers``.
        reuse_is_exact: Whether passes may reuse lower layers; None tries it on one text.
        unit: Whether units are heads or groups.
    """

    model: PreTrainedModel
    texts: Texts
    loss: Loss = ANSWERS
    score: CustomScore | None = None
    part: str | None = None
    reuse_is_exact: bool | None = None
    unit: Unit = "head"
    by_text = True

    @cached_property
    def layers(self) -> AttentionLayers:
        """Where its self-attention lies."""
        return attention_layers(self.model, self.part)

    @cached_property
    def heads_per_layer(self) -> int:
        """The number of heads of a layer, counted by query."""
        return head_count(self.layers.modules[0])

    @cached_property
    def heads_per_unit(self) -> int:
        """The number of heads of a unit."""
        return 1 if self.unit == "head" else heads_per_kv_group(self.layers.modules)

    @property
    def size(self) -> tuple[int, int]:
        """(layers with attention, units in each)."""
        return len(self.layers.modules), self.heads_per_layer // self.heads_per_unit

    @property
    def units(self) -> list[Head]:
        """All units."""
        return [(int(layer), int(unit)) for layer, unit in np.ndindex(*self.size)]

    def unit_name(self, unit: Head) -> str:
        """Return the name of a unit, as the model numbers its layers: ``L0H11``; of a group of
        heads ``L0H8-11``.
        """
        layer, index = unit
        first = index * self.heads_per_unit
        last = first + self.heads_per_unit - 1
        name = head_name(self.layers.numbers[layer], first)
        return name if last == first else f"{name}-{last}"

    def rules(self, substitute: Substitute, units: Sequence[Head]) -> Mapping[int, Rule]:
        """Return the rules of the layers by which units output a substitute."""
        return rules_of(substitute, heads_of_units(units, self.heads_per_unit))

    @cached_property
    def reuse(self) -> LayerReuse:
        """What spares passes without gradients the layers below the first head that changed."""
        text = next(self.texts.batches(np.arange(1)))
        return reuse_in(self.model, lambda: self.outputs(text), self.part, self.reuse_is_exact)

    @property
    def device(self) -> torch.device:
        """Where the model lies."""
        return self.model.device

    def outputs(self, batch: Batch, rules: Mapping[int, Rule] | None = None) -> object:
        """Return what the model outputs while its layers follow ``rules``; gradients pass.

        None calls the model as it is. No rules at all route its attention like any others, so that
        all layers without rules output the same bits.
        """
        if rules is None:
            return call_model(self.model, batch.inputs)
        with routed(self.model, self.layers.modules, rules):
            return call_model(self.model, batch.inputs)

    def answers(self, batch: Batch, rules: Mapping[int, Rule] | None = None) -> Answers:
        """Return what these outputs answer; gradients pass."""
        return answers_of(self.model, self.outputs(batch, rules), batch, self.score)

    def losses(
        self, batch: Batch, rules: Mapping[int, Rule] | None, before: Answers | None = None
    ) -> AnswerLosses:
        """Return the loss of each answer to a batch while layers follow rules; gradients pass. The
        original model's answers, ``before``, are computed where the loss compares and they are
        None.
        """
        if before is None:
            before = self.original_answers(batch)
        return self.loss.of_answers(before, self.answers(batch, rules), batch)

    @torch.no_grad()
    def original_answers(self, batch: Batch) -> Answers:
        """Return the answers of the original model; none where the loss compares nothing."""
        return self.answers(batch) if self.loss.compares else {}

    def gradient_batches(self, rows: Rows) -> Iterator[Batch]:
        """Yield batches of these texts with as many tokens as gradients allow."""
        yield from self.texts.batches(rows, chunk_tokens(self.device))

    def summed(self, batch: Batch, substitute: Substitute, heads: Sequence[Head]) -> SummedLoss:
        """Return the sum of a batch's losses while units output a substitute, and how many each
        text has; gradients pass.
        """
        losses = self.losses(batch, self.rules(substitute, heads))
        return losses.values.sum(), losses.lengths

    @torch.inference_mode()
    def values_of_sets(
        self,
        substitute: Substitute,
        head_sets: Sequence[Sequence[Head]],
        rows: Rows | None = None,
        progress: Progress = ignore_progress,
    ) -> list[ExampleValues]:
        """Return the loss of each text for each set of units that output a substitute; an empty set
        leaves the model as it is. ``progress`` counts passes of one set over one text.
        """
        rows = np.arange(len(self.texts)) if rows is None else rows
        sums = np.zeros((len(head_sets), len(rows)))
        lengths = np.zeros(len(rows), dtype=np.int64)
        done = 0
        for positions, batch in self.batches_of(rows):
            before = self.original_answers(batch)
            name = batch.rows.tobytes()
            for index, heads in enumerate(head_sets):
                forward = partial(self.losses, batch, self.rules(substitute, heads), before)
                losses = self.reuse.run(name, substitute, heads, forward)
                lengths[positions] = losses.lengths.cpu().numpy()
                sums[index, positions] = sums_by_text(losses)
                done += len(positions)
                progress(done, len(head_sets) * len(rows))
            if len(head_sets) > 1:
                self.reuse.forget(name)
        if not np.isfinite(sums).all():
            heads = head_sets[int(np.argwhere(~np.isfinite(sums))[0, 0])]
            names = joined(map(self.unit_name, heads))
            condition = f" with {names} replaced" if heads else ""
            raise NumbersError(f"the loss{condition}", "look at the model's weights and texts")
        return [ExampleValues(of_set, lengths) for of_set in sums]

    def batches_of(self, rows: Rows) -> Iterator[tuple[Int[np.ndarray, " texts"], Batch]]:
        """Yield batches of these texts, with the positions of each batch's texts in ``rows``."""
        order = np.argsort(rows, kind="stable")
        for batch in self.texts.batches(rows):
            yield order[np.searchsorted(rows[order], batch.rows)], batch

    @torch.inference_mode()
    def all_answers(
        self,
        substitute: Substitute | None = None,
        units: Sequence[Head] = (),
        progress: Progress = ignore_progress,
    ) -> AnswerArrays:
        """Return the answers to all texts, in their order, while units output a substitute."""
        rules = None
        if substitute is not None and units:
            rules = self.rules(substitute.to(self.device), units)
        answers: list[Answers] = []
        rows: list[Rows] = []
        for batch in self.texts.batches():
            answers.append(self.answers(batch, rules))
            answers[-1].pop("words", None)  # Too large to keep.
            rows.append(batch.rows)
            progress(sum(map(len, rows)), len(self.texts))
        return concatenated(answers, rows)

    @torch.no_grad()  # Not inference mode: λ is trained beside what observers compute.
    def observe(
        self, observe: Observe, rows: Rows | None = None, progress: Progress = ignore_progress
    ) -> None:
        """Call ``observe`` with the attention of every layer in passes over the texts."""
        done = 0
        for batch in self.texts.batches(rows):
            self.observe_batch(observe, batch)
            done += len(batch.rows)
            progress(done, len(self.texts) if rows is None else len(rows))

    def observe_batch(self, observe: Observe, batch: Batch) -> None:
        """Call ``observe`` with the attention of every layer in one pass."""
        layers = range(len(self.layers.modules))
        self.outputs(batch, {layer: Observing(observe=observe, layer=layer) for layer in layers})


def sums_by_text(losses: AnswerLosses) -> Float[np.ndarray, " texts"]:
    """Return the sum of each text's losses, float64."""
    values = losses.values.detach().double().cpu().numpy()
    lengths = losses.lengths.cpu().numpy()
    text_of_loss = np.repeat(np.arange(len(lengths)), lengths)
    return np.bincount(text_of_loss, values, minlength=len(lengths))


def call_model(model: PreTrainedModel, inputs: Inputs) -> object:
    """Return what a model outputs; its configuration keeps no kind of problem read off labels."""
    config = model.config
    before = config.problem_type
    try:
        return model(**inputs)
    finally:
        config.problem_type = before
