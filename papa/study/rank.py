"""Stage ``rank``: λ of every head, trained with one seed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from papa.encoders.reference import EncoderReference
from papa.errors import ArtifactError
from papa.progress import Progress
from papa.spec import Order, RankingSpec, TaskSpec
from papa.storage.artifacts import (
    ArtifactReference,
    borrowed,
    check_form,
    is_complete,
    opened,
    published,
    read_metadata,
    reading,
    remove,
    sha256_of_json,
)
from papa.study.average import Average
from papa.study.constants import Controls, Given
from papa.study.step import Context, Session, Step, WorkerStep
from papa.study.store import Store
from papa.study.tokenise import OnText, open_corpus
from papa.workers.group import Replicas, WorkerGroup

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from papa.attention.constants import ConstantMatrices
    from papa.corpora.corpus import TokenisedCorpus
    from papa.encoders.encoder import Encoder
    from papa.probes.joint import JointGradients, PartGradient, Tensors
    from papa.probes.minibatches import Part
    from papa.ranking.learned import Halfway
    from papa.ranking.seeds import TrainedLambda

LAMBDA = "lambda.safetensors"
_FEEDS_HELPERS = 1.25
"""Parts in a minibatch, by tokens, from which a second worker saves more here than elsewhere."""
CALL_FLOPS = 5e11
"""About how much work a call has at least: some seconds of a core."""
_HALFWAY = "rank-epochs"


@dataclass(frozen=True, eq=False)
class Rank(OnText, WorkerStep):
    """Train λ on a task's training text: with a probe, or on what the model's own head answers.

    Attributes:
        sets: with ``ranking.until_stable``, the sets of constant heads that end the training once
            they stay: an order by λ and how many of its first heads are constant.
    """

    stage: ClassVar[str] = "rank"
    version: ClassVar[int] = 6
    urgency: ClassVar[int] = 1
    loads_encoder: ClassVar[bool] = True
    trains: ClassVar[bool] = True

    constants: Average | Controls | Given
    task: TaskSpec
    ranking: RankingSpec
    seed: int
    sets: tuple[tuple[Order, int], ...] = ()

    def spec(self) -> dict[str, Any]:
        task, probe, ranking = self.task, self.task.probe, self.ranking
        used = {
            "learning_rate": ranking.learning_rate or probe.learning_rate,
            "epochs": ranking.epochs_on(task),
        }
        return {
            **super().spec(),
            "task": task.model_dump(mode="json", include={"kind", "labels", "slots"}),
            "regression": task.regression,
            "objective": task.lambda_objective,
            "labelled": task.columns.label is not None,
            "probe": probe.model_dump(mode="json", exclude={"learning_rate", "epochs"}),
            "ranking": {
                **ranking.model_dump(mode="json", exclude={"seeds", "evaluations"}),
                **used,
                "seed": self.seed,
            },
            "sets": sorted(map(list, self.sets)) if ranking.until_stable else None,
        }

    def inputs(self) -> dict[str, Step]:
        return {**super().inputs(), "constants": self.constants}

    def run(self, session: Session, progress: Progress) -> None:
        """Train some epochs a call: seeds take turns on the workers, and one that became idle
        helps with the next call.
        """
        store, begun = session.store, False

        def told(done: int, total: int) -> None:
            nonlocal begun
            # A later call begins at 0 as well.
            if done or not begun:
                progress(done, total)
            begun = True

        while not self.is_complete(store):
            helpers = self.helpers(store, session.pool.on_gpu)
            self.run_on_worker(session, told, helpers=helpers)
        for epochs in range(1, self.epochs):
            remove(self.after(epochs, store))

    @property
    def epochs(self) -> int:
        """Epochs in all, at most."""
        return self.ranking.epochs_on(self.task)

    def epochs_a_call(self) -> int:
        """After how many epochs another seed has its turn."""
        of_epoch = self.flops / self.epochs
        return max(1, math.ceil(CALL_FLOPS / of_epoch)) if of_epoch else self.epochs

    def after(self, epochs: int, store: Store) -> str:
        """The address of what an unfinished training leaves after so many epochs."""
        return store.folder(_HALFWAY, sha256_of_json([self.key, epochs]))

    def helpers(self, store: Store, on_gpu: bool) -> int:
        """How many workers beside its own have a part of a minibatch that is worth it."""
        from papa.probes.minibatches import part_tokens

        if self.task.head == "own":
            return 0
        corpus = read_metadata(self.corpus.folder(store))
        tokens = self.task.probe.batch_size * corpus["tokens"]["train"] / corpus["rows"]["train"]
        parts = tokens / part_tokens(on_gpu)
        return math.ceil(parts) - 1 if parts > _FEEDS_HELPERS else 0

    def compute(self, encoder: Encoder | None, context: Context) -> None:
        from safetensors.torch import save_file

        from papa.ranking.learned import train_lambda
        from papa.ranking.seeds import is_stable

        corpus, constants = self.opened(context.found)
        before: list[dict[str, float]] = []
        if encoder is None or self.task.head == "own":
            lambdas = self._of_own(encoder, constants, corpus, context)
        else:
            halfway, before = self.halfway(context.store)
            begun = len(halfway.lambdas)
            until = min(self.epochs, begun + self.epochs_a_call())
            with (context.group or WorkerGroup(encoder)).replicas(
                self.gradients, {"store": context.store}
            ) as replicas:
                lambdas = train_lambda(
                    encoder,
                    constants,
                    corpus,
                    self.task,
                    self.ranking,
                    seed=self.seed,
                    sets=self.sets,
                    of_parts=partial(_gradients_by, replicas),
                    progress=lambda done, total: context.progress(
                        done, total * self.epochs // until
                    ),
                    on_epoch=context.on_epoch,
                    halfway=halfway,
                    until=until,
                )
            if until < self.epochs and not (
                self.ranking.until_stable and is_stable(halfway.lambdas, self.sets)
            ):
                self._leave(halfway, [*before, context.work()], context.store)
                remove(self.after(begun, context.store))
                return
        with context.published(before, epochs=len(lambdas)) as folder:
            save_file({"lambda": lambdas[-1].clone(), "lambda_by_epoch": lambdas}, folder / LAMBDA)

    def halfway(self, store: Store) -> tuple[Halfway, list[dict[str, float]]]:
        """Where an unfinished training stopped, and the work of each call up to there."""
        from papa.ranking.learned import Halfway

        for epochs in range(self.epochs - 1, 0, -1):
            address = self.after(epochs, store)
            if is_complete(address):
                try:
                    with borrowed(address) as folder, reading(address):
                        found = Halfway.load(folder)
                        if len(found.lambdas) != epochs:
                            raise ValueError(f"{len(found.lambdas)} epochs, expected {epochs}")
                        return found, read_metadata(address)["work"]
                except ArtifactError:
                    remove(address)
        return Halfway(), []

    def _leave(self, halfway: Halfway, work: list[dict[str, float]], store: Store) -> None:
        metadata = {"stage": _HALFWAY, "name": self.name, "work": work}
        with published(self.after(len(halfway.lambdas), store), metadata) as folder:
            halfway.save(folder)

    def _of_own(
        self,
        encoder: Encoder | None,
        constants: ConstantMatrices,
        corpus: TokenisedCorpus,
        context: Context,
    ) -> Float[Tensor, "epochs layers heads"]:
        from papa.probes.own_model import opened_own
        from papa.ranking.own import train_lambda_of_own

        reference = (encoder and encoder.reference) or self.encoder
        device = str(encoder.device) if encoder else "cpu"
        model, special_tokens = opened_own(self.task, reference, device)
        return train_lambda_of_own(
            model,
            constants,
            corpus,
            special_tokens,
            self.task,
            self.ranking,
            seed=self.seed,
            sets=self.sets,
            progress=context.progress,
            on_epoch=context.on_epoch,
        )

    def gradients(self, *, encoder: Encoder, store: Store) -> JointGradients:
        """The gradients of λ and probe on one worker of a group, which opens the inputs itself."""
        from papa.ranking.learned import lambda_gradients

        corpus, constants = self.opened(self.found(store))
        return lambda_gradients(
            encoder=encoder, constants=constants, corpus=corpus, task=self.task, seed=self.seed
        )

    def opened(
        self, found: Mapping[Step, ArtifactReference]
    ) -> tuple[TokenisedCorpus, ConstantMatrices]:
        """The text and the constant matrices that λ is trained on, verified."""
        from papa.attention.constants import ConstantMatrices

        constants = ConstantMatrices.load(
            found[self.constants].folder, encoder=self.encoder, slots=self.task.slots
        )
        return open_corpus(found[self.corpus]), constants


def _gradients_by(replicas: Replicas, values: Tensors, parts: Sequence[Part]) -> list[PartGradient]:
    return replicas.map("gradient", values, parts, [part.tokens for part in parts])


def read_lambda(
    rankings: Mapping[int, ArtifactReference], encoder: EncoderReference | None = None
) -> TrainedLambda:
    """λ of every head, of this encoder or any, from finished rankings by seed."""
    from safetensors.numpy import load_file

    from papa.ranking.seeds import TrainedLambda

    by_seed = {}
    for seed, ranking in rankings.items():
        with opened(ranking, LAMBDA) as folder:
            found = load_file(folder / LAMBDA)["lambda_by_epoch"]
            heads = found.shape[-2:] if encoder is None else (encoder.layers, encoder.heads)
            check_form(λ=((found.shape[1:], found.dtype.kind), (heads, "f")))
            by_seed[seed] = found
    return TrainedLambda(by_seed)
