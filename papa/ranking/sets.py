"""Methods that read a loss, of a model's own head or of a frozen probe: how it changes as a head is
turned down; and what sets of heads are worth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from papa.heads.constants import ConstantMatrices
from papa.heads.replacement import replaced
from papa.heads.substitutes import Mixed, Substitute, Zeros, rules_of
from papa.models.encoder import numbers_of
from papa.probes.features import live_features
from papa.probes.own import OwnHead, class_names
from papa.probes.probes import Probe
from papa.probes.training import Rows, Summed, part_tokens
from papa.progress import Progress, ignore_progress
from papa.ranking.seeds import HeadScores, rows_of_seed
from papa.scores.answers import class_ids
from papa.spec import ExecutionSpec, RankingSpec, TaskSpec
from papa.spec.orders import Head
from papa.text.batches import micro_batch, rows_of_like_length
from papa.text.corpus import TokenisedCorpus
from papa.text.tokens import IGNORED

TOLERANCE = 0.01
"""Of v(all) - v(none): an order ends once what is left of it is worth less."""
_VALUED_ROWS = 256
"""Training rows on which a set of heads is valued, where ``ranking.rows`` asks for no other."""
Value = Callable[[Set[Head]], float]
"""v: from the heads that stay input-dependent."""


class HeadLoss:
    """A loss while heads put out a substitute: of a frozen probe, or of own answers."""

    def __init__(
        self,
        corpus: TokenisedCorpus,
        task: TaskSpec,
        own: OwnHead | None = None,
        encoder: Any = None,
        probe: Any = None,
    ) -> None:
        self._own: Any = own
        self._encoder, self._probe, self._task = encoder, probe, task
        self.split, self._names = corpus.split("train"), corpus.label_names
        self.device = own.model.device if own else encoder.device
        # Of a model's own head as many as a step of λ's training takes at once.
        self._tokens = part_tokens(self.device) if own else encoder.tokens_per_batch(None)
        if own:
            own.model.requires_grad_(False)

    def batches(self, rows: Rows) -> Iterator[Rows]:
        lengths = self.split.first_lengths[rows], self.split.lengths[rows]
        for part in rows_of_like_length(*lengths, self._tokens):
            yield rows[part]

    def __call__(self, rows: Rows, substitute: Substitute, heads: Sequence[Head]) -> Summed:
        if (own := self._own) is None:
            batch = micro_batch(self.split, rows)
            with replaced(self._encoder, substitute, heads), numbers_of("the train split"):
                states = self._encoder.token_states(batch)
            features = live_features(states, self.split, batch)
            mean = self._probe.losses(features, torch.arange(len(features))[None]).sum()
            ones, of_tokens = torch.ones(len(features), dtype=torch.int64), features.token_labels
            return mean.double() * len(features.labels), features.lengths if of_tokens else ones
        padded, before = own.padded(self.split, rows), dict[str, Tensor]()
        if self._task.with_itself:
            with torch.no_grad():
                before = own.answers_of(padded, own.outputs(padded))
        rules = rules_of(substitute, heads)
        after = own.answers_of(padded, own.outputs(padded, rules))
        return self._summed(before, after, self.split.labels_of(rows)), after["lengths"]

    def _summed(
        self, before: dict[str, Tensor], after: dict[str, Tensor], labels: np.ndarray
    ) -> Float[Tensor, ""]:
        task = self._task
        if task.of_embeddings:
            pair = after["embeddings"], before["embeddings"]
            return (1 - nn.functional.cosine_similarity(*pair)).sum()
        if task.kind in ("mlm", "causal"):
            return -after["log_probabilities"].sum()
        logits = after["logits"]
        if task.with_itself:
            own, mixed = before["logits"].log_softmax(-1), logits.log_softmax(-1)
            return nn.functional.kl_div(mixed, own, reduction="sum", log_target=True)
        if task.regression:
            truth = torch.from_numpy(labels).to(logits)
            return nn.functional.mse_loss(logits[:, 0], truth, reduction="sum")
        labels = labels[labels != IGNORED]
        if self._names:
            labels = class_ids(self._names, class_names(self._own.model), task)[labels]
        truth = torch.from_numpy(labels).long().to(logits.device)
        return nn.functional.cross_entropy(logits, truth, reduction="sum")


@dataclass(frozen=True)
class Asked:
    """Which heads are scored, and by what: of the corpus the training split, of ``ranking`` what
    the method ``reads``; the probe is frozen, ``own`` answers the task. A decoder has no
    ``encoder``.
    """

    encoder: Any
    constants: ConstantMatrices
    corpus: TokenisedCorpus
    task: TaskSpec
    ranking: RankingSpec
    seed: int
    execution: ExecutionSpec
    progress: Progress = ignore_progress
    probe: Probe | None = None
    own: OwnHead | None = None

    @property
    def rows(self) -> Int[np.ndarray, " rows"]:
        """The training rows that heads are scored on: ``ranking.rows`` of the seed's, or all."""
        return rows_of_seed(len(self.corpus.split("train")), self.ranking.rows, self.seed)

    def loss(self) -> HeadLoss:
        """Of what the model's own head answers, or of the frozen probe."""
        return HeadLoss(self.corpus, self.task, self.own, self.encoder, self.probe)


def gradient(asked: Asked) -> HeadScores:
    """E_x |∂L(x)/∂g_h| at g = 1 (Michel et al., 2019, Section 4.1, Equation 2): L(x) is the mean
    over the labels of one input. It equals |Σ ctx · ∂L/∂ctx| over tokens and width, with ctx what
    the head puts out; the authors' code sums absolute values of tokens and divides by each layer's
    norm.
    """
    loss, (layers, heads) = asked.loss(), asked.constants.values.shape[:2]
    found, done = list[np.ndarray](), 0
    for rows in loss.batches(np.sort(asked.rows)):
        # Each input has gates of its own.
        gates = torch.ones(layers, len(rows), heads, device=loss.device, requires_grad=True)
        summed, labels = loss(rows, Mixed(Zeros(), gates), [*np.ndindex(layers, heads)])
        (of_gates,) = torch.autograd.grad(summed, gates)
        # An input without a label of its tokens has no loss.
        by_label = of_gates.abs().cpu() / labels.cpu().to(of_gates.dtype).clamp(min=1)[:, None]
        found.append(by_label.double().numpy())
        done += len(rows)
        asked.progress(done, len(asked.rows))
    of_inputs = np.concatenate(found, axis=1)
    error = of_inputs.std(axis=1, ddof=1) / np.sqrt(done) if done > 1 else None
    return HeadScores(of_inputs.mean(axis=1)[None], error, done, 2)


class LossValue:
    """v(S): the negative mean loss on a sample while all heads outside of S are constant."""

    def __init__(self, asked: Asked) -> None:
        self.size, self.evaluations = asked.constants.values.shape[:2], 0
        self.heads: list[Head] = [*np.ndindex(*self.size)]
        self._loss = asked.loss()
        self._constants = asked.constants.to(self._loss.device)
        count = asked.ranking.rows or _VALUED_ROWS
        rows = rows_of_seed(len(asked.corpus.split("train")), count, asked.seed)
        self._batches = [*self._loss.batches(np.sort(rows))]

    @torch.inference_mode()
    def __call__(self, own: Set[Head]) -> float:
        heads = [head for head in self.heads if head not in own]
        found = [self._loss(rows, self._constants, heads) for rows in self._batches]
        self.evaluations += 1
        return -sum(float(summed) for summed, _ in found) / sum(int(n.sum()) for _, n in found)

    def scores(
        self, values: Float[np.ndarray, " heads"], errors: Any = None, draws: int = 0
    ) -> HeadScores:
        error = None if errors is None else errors.reshape(self.size)
        return HeadScores(values.reshape(1, *self.size), error, draws, self.evaluations)


def effect(asked: Asked) -> HeadScores:
    """v(all) - v(all without the head), in units of the loss (after Michel et al., 2019, Section
    3.2): 0 for a head that is as good constant, below where it is better.
    """
    value = LossValue(asked)
    everyone, lost = frozenset(value.heads), list[float]()
    whole = value(everyone)
    for head in value.heads:
        lost.append(whole - value(everyone - {head}))
        asked.progress(len(lost), len(value.heads))
    return value.scores(np.array(lost))


def greedy(asked: Asked) -> HeadScores:
    """The greedy order: at each step the head whose becoming constant costs least."""
    value, evaluations = LossValue(asked), asked.ranking.evaluations
    return value.scores(greedy_places(value, value.heads, evaluations, asked.progress))


def shapley(asked: Asked) -> HeadScores:
    """What heads add to the value of others, over all orders of joining (Held & Yang, 2022)."""
    value = LossValue(asked)
    given = value, value.heads, asked.ranking.evaluations
    return value.scores(*shapley_values(*given, asked.seed, progress=asked.progress))


def greedy_places(
    value: Value, heads: Sequence[Head], evaluations: int, progress: Progress = ignore_progress
) -> Float[np.ndarray, " heads"]:
    """The place of every head in the order in which they become constant, from 0. Where
    ``evaluations`` are too few for one head a step, several become constant together, the cheapest
    first.
    """
    # The last step needs no choice; where evaluations are too few for any, all are one step.
    needed = {size: sum(range(len(heads), 1, -size)) for size in range(1, len(heads) + 1)}
    together = next((size for size in needed if needed[size] <= evaluations), len(heads))
    left, places, done = sorted(heads), dict[Head, int](), 0
    while left:
        costs = dict.fromkeys(left, 0.0)
        for head in left if len(left) > 1 else ():
            costs[head] = -value(frozenset(left) - {head})
            done += 1
            progress(done, needed[together])
        for head in sorted(left, key=costs.__getitem__)[:together]:
            places[head] = len(places)
            left.remove(head)
    return np.array([places[head] for head in heads], dtype=np.float64)


def shapley_values(
    value: Value,
    heads: Sequence[Head],
    evaluations: int,
    seed: int,
    *,
    tolerance: float = TOLERANCE,
    progress: Progress = ignore_progress,
) -> tuple[Float[np.ndarray, " heads"], Float[np.ndarray, " heads"], int]:
    """The Shapley value of every head, its standard error, and from how many draws it is.

    Orders are drawn, each with its reverse (antithetic sampling): a pair is one draw. Where less
    than ``tolerance`` of v(all) - v(none) is left (Ghorbani & Zou, 2019, Section 3.2), it is
    divided among the order's last heads, so that shares add up.
    """
    everyone, generator = frozenset(heads), np.random.default_rng(seed)
    best, worst = value(everyone), value(frozenset[Head]())
    done, draws = 2, list[Float[np.ndarray, " heads"]]()
    while done + 2 * (len(heads) - 1) <= evaluations and len(draws) < evaluations:
        order, shares = generator.permutation(len(heads)), np.zeros(len(heads))
        for walk in (order, order[::-1]):
            left, before = everyone, best
            for step, index in enumerate(walk):
                if index == walk[-1] or abs(before - worst) < tolerance * abs(best - worst):
                    shares[walk[step:]] += (before - worst) / (len(walk) - step)
                    break
                left = left - {heads[index]}
                after = value(left)
                shares[index] += before - after
                before, done = after, done + 1
                progress(done, evaluations)
        draws.append(shares / 2)
    progress(evaluations, evaluations)
    found = np.stack(draws)
    return found.mean(axis=0), found.std(axis=0, ddof=1) / np.sqrt(len(found)), len(found)
