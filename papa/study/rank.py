"""Stage ``rank``: λ of every head, trained with one seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from papa.encoders.reference import EncoderReference
from papa.spec import Order, RankingSpec, TaskSpec
from papa.storage.artifacts import (
    ArtifactReference,
    check_form,
    opened,
    read_metadata,
)
from papa.study.average import Average
from papa.study.constants import Controls, Given
from papa.study.step import Context, Step, WorkerStep
from papa.study.tokenise import OnText, open_corpus

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Float
    from torch import Tensor

    from papa.attention.constants import ConstantMatrices
    from papa.corpora.corpus import TokenisedCorpus
    from papa.encoders.encoder import Encoder
    from papa.ranking.seeds import TrainedLambda

LAMBDA = "lambda.safetensors"


@dataclass(frozen=True, eq=False)
class Rank(OnText, WorkerStep):
    """Train λ on a task's training text: with a probe, or on what the model's own head answers.

    Attributes:
        sets: with ``ranking.until_stable``, the sets of constant heads that end the training once
            they stay: an order by λ and how many of its first heads are constant.
        shuffled: whether training labels are shuffled, by the seed.
    """

    stage: ClassVar[str] = "rank"
    version: ClassVar[int] = 7
    loads_encoder: ClassVar[bool] = True
    trains: ClassVar[bool] = True

    constants: Average | Controls | Given
    task: TaskSpec
    ranking: RankingSpec
    seed: int
    sets: tuple[tuple[Order, int], ...] = ()
    shuffled: bool = False

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
                **ranking.model_dump(mode="json", exclude={"seeds", "evaluations", "control"}),
                **used,
                "seed": self.seed,
            },
            "sets": sorted(map(list, self.sets)) if ranking.until_stable else None,
            "shuffled": self.shuffled,
        }

    def inputs(self) -> dict[str, Step]:
        return {**super().inputs(), "constants": self.constants}

    def compute(self, encoder: Encoder | None, context: Context) -> None:
        from safetensors.torch import save_file

        from papa.attention.constants import ConstantMatrices
        from papa.corpora.rows import order_of_rows
        from papa.ranking.learned import train_lambda

        constants = ConstantMatrices.load(
            context.found[self.constants].folder, encoder=self.encoder, slots=self.task.slots
        )
        corpus = open_corpus(context.found[self.corpus])
        if self.shuffled:
            corpus = replace(corpus, shuffled=self.seed)
        if encoder is None or self.task.head == "own":
            lambdas = self._of_own(encoder, constants, corpus, context)
        else:
            lambdas = train_lambda(
                encoder,
                constants,
                corpus,
                self.task,
                self.ranking,
                seed=self.seed,
                sets=self.sets,
                progress=context.progress,
                on_epoch=context.on_epoch,
            )
        order = order_of_rows(len(corpus.split("train")), self.ranking.rows, self.seed)
        with context.published(epochs=len(lambdas), order_of_rows=order) as folder:
            save_file({"lambda": lambdas[-1].clone(), "lambda_by_epoch": lambdas}, folder / LAMBDA)

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


def read_lambda(
    rankings: Mapping[int, ArtifactReference],
    encoder: EncoderReference | None = None,
    controls: Mapping[int, ArtifactReference] = MappingProxyType({}),
) -> TrainedLambda:
    """λ of every head, of this encoder or any, from finished rankings, shuffled labels apart."""
    from papa.ranking.seeds import TrainedLambda

    orders = {read_metadata(ranking.path).get("order_of_rows") for ranking in rankings.values()}
    return TrainedLambda(
        {seed: _by_epoch(ranking, encoder) for seed, ranking in rankings.items()},
        own_rows=len(orders) == 1 and None not in orders,
        shuffled={seed: _by_epoch(ranking, encoder) for seed, ranking in controls.items()},
    )


def _by_epoch(ranking: ArtifactReference, encoder: EncoderReference | None) -> np.ndarray:
    from safetensors.numpy import load_file

    with opened(ranking, LAMBDA) as folder:
        found = load_file(folder / LAMBDA)["lambda_by_epoch"]
        heads = found.shape[-2:] if encoder is None else (encoder.layers, encoder.heads)
        check_form(λ=((found.shape[1:], found.dtype.kind), (heads, "f")))
    return found
