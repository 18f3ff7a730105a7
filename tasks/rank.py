"""Stage ``rank``: λ of every head, and the orders it gives."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from papa.encoders.reference import EncoderReference
from papa.progress import Progress
from papa.ranking import head_order
from papa.spec import Order, RankingSpec, TaskSpec
from papa.storage.artifacts import Address, ArtifactReference, is_complete, published, read_metadata, verify
from papa.workers.team import Alone, Crew, Team
from tasks.step import Session, Step, identity
from tasks.tokenise import open_corpus

if TYPE_CHECKING:
    from papa.attention.constants import ConstantMatrices
    from papa.corpora.corpus import TokenisedCorpus
    from papa.probes.joint import JointGradients, PartGradient, Tensors
    from papa.probes.minibatches import Part
    from papa.ranking.stability import Stability

LAMBDA = "lambda.safetensors"
ORDERS = "orders.json"
BY_LAMBDA: tuple[Order, ...] = ("lambda", "lambda_reversed")
_FEEDS_A_TEAM = 1.25
"""Parts' worth of tokens in a minibatch from which on a second worker saves more time than it could elsewhere."""


@dataclass(frozen=True)
class Rank(Step):
    """Train λ on a task's training text.

    Attributes:
        encoder: whose heads.
        corpus: the task's tokenised text.
        constants: the constant matrices that attention is mixed with.
        task: its labels and probe.
        ranking: how λ is trained.
        sets: with ``ranking.until_stable``, the sets of constant heads that end the training once they stay: an order
            by λ and how many of its first heads are constant.
    """

    stage: ClassVar[str] = "rank"
    version: ClassVar[int] = 4

    encoder: EncoderReference
    corpus: ArtifactReference
    constants: ArtifactReference
    task: TaskSpec
    ranking: RankingSpec
    sets: tuple[tuple[Order, int], ...] = ()

    def spec(self) -> dict[str, Any]:
        task, probe, ranking = self.task, self.task.probe, self.ranking
        used = {"learning_rate": ranking.learning_rate or probe.learning_rate, "epochs": ranking.epochs_on(task)}
        return {
            "encoder": identity(self.encoder),
            "task": task.model_dump(mode="json", include={"kind", "labels", "slots"}),
            "regression": task.regression,
            "probe": probe.model_dump(mode="json", exclude={"learning_rate", "epochs"}),
            "ranking": {**ranking.model_dump(mode="json"), **used},
            "sets": sorted(map(list, self.sets)) if ranking.until_stable else None,
        }

    def upstream(self) -> dict[str, str | None]:
        return {
            "encoder": self.encoder.digest,
            "corpus": self.corpus.digest,
            "constants": self.constants.digest,
        }

    def run(self, session: Session, progress: Progress) -> None:
        session.pool.run(
            rank,
            encoder=self.encoder,
            arguments={
                "reference": self.encoder,
                "corpus": self.corpus,
                "constants": self.constants,
                "task": self.task,
                "ranking": self.ranking,
                "sets": self.sets,
                "folder": self.folder(session.store),
                "metadata": self.metadata(),
            },
            progress=progress,
            urgency=1,
            with_team=self.feeds_a_team(session.pool.on_gpu),
        )

    def feeds_a_team(self, on_gpu: bool) -> bool:
        """Whether minibatches have work for more than one worker; others are better off with other steps."""
        from papa.probes.minibatches import part_tokens

        corpus = read_metadata(self.corpus.path)
        tokens = self.task.probe.batch_size * corpus["tokens"]["train"] / corpus["rows"]["train"]
        return tokens > _FEEDS_A_TEAM * part_tokens(on_gpu)


def rank(
    *,
    encoder: Any,
    reference: EncoderReference,
    corpus: ArtifactReference,
    constants: ArtifactReference,
    task: TaskSpec,
    ranking: RankingSpec,
    sets: Sequence[tuple[Order, int]],
    folder: Address,
    metadata: Mapping[str, Any],
    progress: Progress,
    team: Team | None = None,
) -> None:
    """Publish λ and the head orders by λ at ``folder``, unless they are there by now."""
    if is_complete(folder):
        return
    from safetensors.torch import save_file

    from papa.ranking.learned import train_lambda
    from papa.ranking.stability import stability

    started = time.monotonic()
    tokenised, matrices = opened(reference, corpus, constants, task)
    shared = {"reference": reference, "corpus": corpus, "constants": constants, "task": task, "seed": ranking.seed}
    with (team or Alone(encoder)).crew(gradients, shared) as crew:
        lambdas = train_lambda(
            encoder,
            matrices,
            tokenised,
            task,
            ranking,
            sets=sets,
            of_parts=partial(_gradients_by, crew),
            progress=progress,
        )
    orders = {name: head_order(name, lambdas[-1], encoder.layers, encoder.heads, ranking.seed) for name in BY_LAMBDA}
    found = {"epochs": len(lambdas), "kendall_tau": stability(lambdas, ()).kendall_tau}
    with published(folder, {**metadata, **found, "seconds": time.monotonic() - started}) as scratch:
        save_file({"lambda": lambdas[-1].clone(), "lambda_by_epoch": lambdas}, scratch / LAMBDA)
        (scratch / ORDERS).write_text(json.dumps(orders) + "\n")


def _gradients_by(crew: Crew, values: Tensors, parts: Sequence[Part]) -> list[PartGradient]:
    return crew.each("gradient", values, parts, [part.tokens for part in parts])


def gradients(
    *,
    encoder: Any,
    reference: EncoderReference,
    corpus: ArtifactReference,
    constants: ArtifactReference,
    task: TaskSpec,
    seed: int,
) -> JointGradients:
    """What finds gradients on one member of a crew, which opens everything for itself."""
    from papa.ranking.learned import lambda_gradients

    tokenised, matrices = opened(reference, corpus, constants, task)
    return lambda_gradients(encoder=encoder, constants=matrices, corpus=tokenised, task=task, seed=seed)


def opened(
    reference: EncoderReference, corpus: ArtifactReference, constants: ArtifactReference, task: TaskSpec
) -> tuple[TokenisedCorpus, ConstantMatrices]:
    """What λ is trained on: the text and the constant matrices, verified."""
    from papa.attention.constants import ConstantMatrices

    matrices = ConstantMatrices.load(constants.folder, encoder=reference, slots=task.slots)
    return open_corpus(corpus.folder, corpus.digest), matrices


def read_orders(folder: Path) -> dict[str, list[tuple[int, int]]]:
    """The head orders by λ of a finished ranking: order → (layer, head), first to become constant first.

    Raises:
        ArtifactError: the artifact is damaged.
    """
    verify(folder, ORDERS)
    orders = json.loads((folder / ORDERS).read_text())
    return {name: [(layer, head) for layer, head in heads] for name, heads in orders.items()}


def read_stability(folder: Path, fractions: Sequence[float]) -> Stability:
    """How many epochs a finished ranking took, and what the last of them changed.

    Args:
        folder: the artifact.
        fractions: the input-dependent fractions whose constant heads are compared.

    Raises:
        ArtifactError: the artifact is damaged.
    """
    from safetensors.numpy import load_file

    from papa.ranking.stability import stability

    verify(folder)
    return stability(load_file(folder / LAMBDA)["lambda_by_epoch"], fractions)
