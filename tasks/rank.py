"""Stage ``rank``: λ of every head, and the orders it gives."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from papa.encoders.reference import EncoderReference
from papa.progress import Progress
from papa.ranking import HEAD_ORDERS, head_order, needs_lambda
from papa.spec import Order, RankingSpec, TaskSpec
from papa.storage.artifacts import ArtifactReference, read_metadata, verify
from papa.workers.group import Replicas, WorkerGroup
from tasks.step import Context, Session, WorkerStep, identity
from tasks.tokenise import open_corpus

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from papa.attention.constants import ConstantMatrices
    from papa.corpora.corpus import TokenisedCorpus
    from papa.encoders.encoder import Encoder
    from papa.probes.joint import JointGradients, PartGradient, Tensors
    from papa.probes.minibatches import Part
    from papa.ranking.stability import Stability

LAMBDA = "lambda.safetensors"
ORDERS = "orders.json"
_FEEDS_HELPERS = 1.25
"""Parts in a minibatch, by tokens, from which on a second worker saves more time here than with another step."""


@dataclass(frozen=True)
class Rank(WorkerStep):
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
        helpers = self.helpers(session.pool.on_gpu)
        on_epoch = partial(session.on_epoch, self.name)
        self.run_on_worker(session, progress, encoder=self.encoder, urgency=1, helpers=helpers, on_epoch=on_epoch)

    def helpers(self, on_gpu: bool) -> int:
        """How many workers beside its own have a part of a minibatch to do; others finish more with other steps."""
        from papa.probes.minibatches import part_tokens

        corpus = read_metadata(self.corpus.path)
        tokens = self.task.probe.batch_size * corpus["tokens"]["train"] / corpus["rows"]["train"]
        parts = tokens / part_tokens(on_gpu)
        return math.ceil(parts) - 1 if parts > _FEEDS_HELPERS else 0

    def compute(self, encoder: Encoder, context: Context) -> None:
        from safetensors.torch import save_file

        from papa.ranking.learned import train_lambda
        from papa.ranking.stability import stability

        corpus, constants = self.opened()
        with (context.group or WorkerGroup(encoder)).replicas(self.gradients, {}) as replicas:
            lambdas = train_lambda(
                encoder,
                constants,
                corpus,
                self.task,
                self.ranking,
                sets=self.sets,
                of_parts=partial(_gradients_by, replicas),
                progress=context.progress,
                on_epoch=context.on_epoch,
            )
        seed = self.ranking.seed
        names = filter(needs_lambda, HEAD_ORDERS)
        orders = {name: head_order(name, lambdas[-1], encoder.layers, encoder.heads, seed) for name in names}
        with context.published(epochs=len(lambdas), kendall_tau=stability(lambdas, ()).kendall_tau) as folder:
            save_file({"lambda": lambdas[-1].clone(), "lambda_by_epoch": lambdas}, folder / LAMBDA)
            (folder / ORDERS).write_text(json.dumps(orders) + "\n")

    def gradients(self, *, encoder: Encoder) -> JointGradients:
        """The gradients of λ and probe on one worker of a group, which opens the inputs itself."""
        from papa.ranking.learned import lambda_gradients

        corpus, constants = self.opened()
        seed = self.ranking.seed
        return lambda_gradients(encoder=encoder, constants=constants, corpus=corpus, task=self.task, seed=seed)

    def opened(self) -> tuple[TokenisedCorpus, ConstantMatrices]:
        """The text and the constant matrices that λ is trained on, verified."""
        from papa.attention.constants import ConstantMatrices

        constants = ConstantMatrices.load(self.constants.folder, encoder=self.encoder, slots=self.task.slots)
        return open_corpus(self.corpus.folder, self.corpus.digest), constants


def _gradients_by(replicas: Replicas, values: Tensors, parts: Sequence[Part]) -> list[PartGradient]:
    return replicas.map("gradient", values, parts, [part.tokens for part in parts])


def read_orders(folder: Path) -> dict[str, list[tuple[int, int]]]:
    """The head orders by λ of a finished ranking: order → (layer, head), first to become constant first.

    Raises:
        ArtifactError: the artifact is damaged.
    """
    verify(folder, ORDERS)
    orders = json.loads((folder / ORDERS).read_text())
    return {name: [(layer, head) for layer, head in heads] for name, heads in orders.items()}


def read_lambda(folder: Path) -> Float[Tensor, "layers heads"]:
    """λ of every head after the last epoch of a finished ranking.

    Raises:
        ArtifactError: the artifact is damaged.
    """
    from safetensors.torch import load_file

    verify(folder, LAMBDA)
    return load_file(folder / LAMBDA)["lambda"]


def read_stability(folder: Path, fractions: Sequence[float]) -> Stability:
    """How many epochs a finished ranking took, and what the last epoch changed.

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
