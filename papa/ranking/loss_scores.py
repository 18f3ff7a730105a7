"""The loss by which methods score heads, of a model's native head or of a frozen probe; and how it
changes as a head is turned down.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int

from papa.heads.constants import ConstantMatrices
from papa.heads.replacement import replaced
from papa.heads.substitutes import Mixed, Substitute, Zeros
from papa.models.encoder import Encoder, numbers_of
from papa.probes.packed_features import live_features
from papa.probes.probes import Probe
from papa.probes.training import Rows, SummedLoss
from papa.progress import Progress, ignore_progress
from papa.ranking.head_scores import HeadScores, rows_of_seed
from papa.spec import ExecutionSpec, ProbeSpec, RankingSpec, TaskSpec
from papa.spec.orders import Head
from papa.text.batches import MicroBatch, micro_batch, rows_of_like_length
from papa.text.corpus import TokenisedCorpus


@dataclass(frozen=True)
class ExampleValues:
    """Sums of losses: one for each text of a native head, or for each batch of a probe.

    Attributes:
        sums: Float64, in the order of the requested rows.
        lengths: How many losses each sum is of.
    """

    sums: Float[np.ndarray, " examples"]
    lengths: Int[np.ndarray, " examples"]

    @property
    def mean(self) -> float:
        """The mean loss; 0 where there is none."""
        return float(self.sums.sum() / max(int(self.lengths.sum()), 1))

    @classmethod
    def joined(cls, shards: Sequence[ExampleValues]) -> ExampleValues:
        """Join the values of consecutive shards of rows."""
        return cls(
            np.concatenate([shard.sums for shard in shards]),
            np.concatenate([shard.lengths for shard in shards]),
        )


@runtime_checkable
class HeadLoss(Protocol):
    """A loss while heads output a substitute: of a frozen probe, or of a native head."""

    by_text: bool
    """Whether ``values_of_sets`` has a sum for each text, from which intervals follow."""

    @property
    def size(self) -> tuple[int, int]:
        """(layers, heads in each)."""
        ...

    @property
    def device(self) -> torch.device:
        """The model's."""
        ...

    def gradient_batches(self, rows: Rows) -> Iterator[Any]:
        """Yield batches of these rows, for ``summed``, with as many tokens as gradients allow."""
        ...

    def summed(self, batch: Any, substitute: Substitute, heads: Sequence[Head]) -> SummedLoss:
        """Return the sum of a batch's losses, and how many each row has; gradients pass."""
        ...

    def values_of_sets(
        self,
        substitute: Substitute,
        head_sets: Sequence[Sequence[Head]],
        rows: Rows,
        progress: Progress = ignore_progress,
    ) -> list[ExampleValues]:
        """Return the losses of rows for each set of heads that output a substitute."""
        ...


SomeLoss = TypeVar("SomeLoss", bound=HeadLoss, covariant=True)


@dataclass(frozen=True)
class LossRequest(Generic[SomeLoss]):
    """Which heads are scored by a loss, and how.

    Attributes:
        loss: Of a frozen probe, or of a native head.
        substitute: What heads output instead, on the model's device.
        rows: Those of the seed.
        valued_rows: Those on which sets of heads are valued.
        evaluations: How often they may be.
        seed: Of the order of the rows, and of what is drawn.
        training: Learning rate, rows in a mini-batch, and epochs, of what is trained on a native
            head; may be None where nothing is.
        progress: Called with (done, total).
    """

    loss: SomeLoss
    substitute: Substitute
    rows: Rows
    valued_rows: Int[np.ndarray, " valued"]
    evaluations: int
    seed: int
    training: ProbeSpec | None = None
    progress: Progress = ignore_progress


@dataclass(frozen=True)
class ProbeLoss:
    """The loss of a frozen probe on a training split."""

    encoder: Encoder
    probe: Probe
    corpus: TokenisedCorpus
    by_text = False

    @property
    def size(self) -> tuple[int, int]:
        return self.encoder.layers, self.encoder.heads

    @property
    def device(self) -> torch.device:
        return self.encoder.device

    def gradient_batches(self, rows: Rows) -> Iterator[MicroBatch]:
        split = self.corpus.split("train")
        tokens = self.encoder.tokens_per_batch(None)
        for batch in rows_of_like_length(split.first_lengths[rows], split.lengths[rows], tokens):
            yield micro_batch(split, rows[batch])

    def summed(
        self, batch: MicroBatch, substitute: Substitute, heads: Sequence[Head]
    ) -> SummedLoss:
        split = self.corpus.split("train")
        with replaced(self.encoder, substitute, heads), numbers_of("the train split"):
            states = self.encoder.token_states(batch)
        features = live_features(states, split, batch)
        mean = self.probe.losses(features, torch.arange(len(features))[None]).sum()
        ones = torch.ones(len(features), dtype=torch.int64)
        lengths = features.lengths if features.token_labels else ones
        return mean.double() * len(features.labels), lengths

    @torch.inference_mode()
    def values_of_sets(
        self,
        substitute: Substitute,
        head_sets: Sequence[Sequence[Head]],
        rows: Rows,
        progress: Progress = ignore_progress,
    ) -> list[ExampleValues]:
        batches = [*self.gradient_batches(rows)]
        values: list[ExampleValues] = []
        for done, heads in enumerate(head_sets, 1):
            summed = [self.summed(batch, substitute, heads) for batch in batches]
            sums = np.array([float(losses) for losses, _ in summed])
            lengths = np.array([int(lengths.sum()) for _, lengths in summed])
            values.append(ExampleValues(sums, lengths))
            progress(done, len(head_sets))
        return values


@dataclass(frozen=True)
class ScoringRequest:
    """A study's request for scores of a plain encoder's heads.

    Attributes:
        encoder: The encoder.
        constants: What heads output instead.
        corpus: Of which the training split is read.
        task: What decides a loss.
        ranking: What the method ``reads``.
        seed: Of rows and of what is drawn.
        execution: Settings that change results by rounding alone.
        progress: Called with (done, total).
    """

    encoder: Encoder
    constants: ConstantMatrices
    corpus: TokenisedCorpus
    task: TaskSpec
    ranking: RankingSpec
    seed: int
    execution: ExecutionSpec
    progress: Progress = ignore_progress

    @property
    def rows(self) -> Rows:
        """The training rows that heads are scored on: ``ranking.rows`` of the seed's, or all."""
        return rows_of_seed(len(self.corpus.split("train")), self.ranking.rows, self.seed)


def gradient(request: LossRequest[HeadLoss]) -> HeadScores:
    """Compute E_x |∂L(x)/∂g_h| at g = 1 (Michel et al., 2019, Section 4.1, Equation 2): L(x) is the
    mean over the labels of one input. It equals |Σ ctx · ∂L/∂ctx| over tokens and width, with ctx
    what the head outputs; the authors' code sums absolute values of tokens and divides by each
    layer's norm.
    """
    loss = request.loss
    layers, heads = loss.size
    by_batch: list[np.ndarray] = []
    done = 0
    for batch in loss.gradient_batches(np.sort(request.rows)):
        # Each input has gates of its own.
        gates = torch.ones(layers, len(batch.rows), heads, device=loss.device, requires_grad=True)
        summed, labels = loss.summed(batch, Mixed(Zeros(), gates), [*np.ndindex(layers, heads)])
        (gradients,) = torch.autograd.grad(summed, gates)
        # Without a labelled token an input's loss is 0, and so is its gradient.
        count = labels.cpu().to(gradients.dtype).clamp(min=1)[:, None]
        by_batch.append((gradients.abs().cpu() / count).double().numpy())
        done += len(batch.rows)
        request.progress(done, len(request.rows))
    by_input = np.concatenate(by_batch, axis=1)
    error = by_input.std(axis=1, ddof=1) / np.sqrt(done) if done > 1 else None
    # Each row takes a pass forward and one backward.
    return HeadScores(by_input.mean(axis=1)[None], error, samples=done, evaluations=2)
