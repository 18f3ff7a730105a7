"""Stage ``rank``: λ of every head, and the orders it gives."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from papa.artifacts import ArtifactReference, published, read_metadata
from papa.encoders.reference import EncoderReference
from papa.errors import ArtifactError
from papa.progress import Progress
from papa.ranking import head_order
from papa.spec import Order, RankingSpec, TaskSpec
from tasks.session import Session
from tasks.step import Step, identity
from tasks.tokenise import open_corpus

LAMBDA = "lambda.safetensors"
ORDERS = "orders.json"
BY_LAMBDA: tuple[Order, ...] = ("lambda", "lambda_reversed")


@dataclass(frozen=True)
class Rank(Step):
    """Train λ on a task's training text.

    Attributes:
        encoder: whose heads.
        corpus: the task's tokenised text.
        constants: the constant matrices that attention is mixed with.
        task: its labels and probe.
        ranking: how λ is trained.
    """

    stage: ClassVar[str] = "rank"
    version: ClassVar[int] = 1

    encoder: EncoderReference
    corpus: ArtifactReference
    constants: ArtifactReference
    task: TaskSpec
    ranking: RankingSpec

    def spec(self) -> dict[str, Any]:
        task, probe = self.task, self.task.probe
        rate = self.ranking.learning_rate or probe.learning_rate
        return {
            "encoder": identity(self.encoder),
            "task": task.model_dump(mode="json", include={"kind", "labels", "slots"}),
            "regression": task.regression,
            "probe": {"batch_size": probe.batch_size, "encoder_dropout": probe.encoder_dropout},
            "ranking": {**self.ranking.model_dump(mode="json"), "learning_rate": rate},
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
                "folder": self.folder(session.store),
                "metadata": self.metadata(),
            },
            progress=progress,
            urgency=1,
        )


def rank(
    *,
    encoder: Any,
    reference: EncoderReference,
    corpus: ArtifactReference,
    constants: ArtifactReference,
    task: TaskSpec,
    ranking: RankingSpec,
    folder: Path,
    metadata: Mapping[str, Any],
    progress: Progress,
) -> None:
    """Publish λ and the head orders by λ at ``folder``."""
    from safetensors.torch import save_file

    from papa.attention.constants import ConstantMatrices
    from papa.ranking.training import train_lambda

    started = time.monotonic()
    tokenized = open_corpus(corpus.folder, corpus.digest)
    matrices = ConstantMatrices.load(constants.folder, encoder=reference, slots=task.slots)
    lambdas = train_lambda(encoder, matrices, tokenized, task, ranking, progress=progress)
    orders = {name: head_order(name, lambdas, encoder.layers, encoder.heads, ranking.seed) for name in BY_LAMBDA}
    document = {**metadata, "seconds": time.monotonic() - started}
    with published(folder, document) as scratch:
        save_file({"lambda": lambdas.detach().float().cpu().contiguous()}, scratch / LAMBDA)
        (scratch / ORDERS).write_text(json.dumps(orders) + "\n")


def read_orders(folder: Path) -> dict[str, list[tuple[int, int]]]:
    """The head orders by λ of a finished ranking: order → (layer, head), first to become constant first.

    Raises:
        ArtifactError: the artifact is damaged.
    """
    read_metadata(folder)
    try:
        orders = json.loads((folder / ORDERS).read_text())
        return {name: [(layer, head) for layer, head in heads] for name, heads in orders.items()}
    except (OSError, ValueError):
        raise ArtifactError(f"{folder / ORDERS} is damaged: delete {folder} and run again") from None
