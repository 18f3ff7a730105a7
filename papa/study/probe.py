"""Stage ``probe``: the scores of one cell of a study, all seeds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import TypeAdapter

from papa.scores.own import OwnCode, code_part
from papa.spec import FeaturesSpec, Order, TaskSpec
from papa.spec.orders import Head, head_order, scored_by
from papa.spec.values import REUSED
from papa.storage.artifacts import Address, ArtifactReference, check_form, opened
from papa.study.constants import Outputs, ReusedBefore
from papa.study.score_heads import Ranking, read_head_scores
from papa.study.step import Context, Step, WorkerStep
from papa.study.tokenise import OnText, open_corpus

if TYPE_CHECKING:
    from papa.attention.constants import ConstantMatrices
    from papa.attention.outputs import ConstantOutputs
    from papa.corpora.corpus import TokenisedCorpus
    from papa.encoders.encoder import Encoder
    from papa.probes.features import FeatureModel
    from papa.probes.training import SeedScore

SCORES = "scores.json"
EXAMPLES = "examples.safetensors"


class ScoringStep(OnText, WorkerStep):
    """A step that trains and scores the task's probe for every seed: ``Probe`` and ``Baseline``."""

    loads_encoder: ClassVar[bool] = True
    trains: ClassVar[bool] = True

    task: TaskSpec
    seeds: tuple[int, ...]
    features: FeaturesSpec
    code: OwnCode | None

    def outside(self) -> dict[str, str]:
        return {**super().outside(), **code_part(self.code)}

    def spec(self) -> dict[str, Any]:
        return {
            **OnText.spec(self),
            "task": self.task.model_dump(
                mode="json", include={"kind", "labels", "slots", "metric", "positive", "probe"}
            ),
            "seeds": list(self.seeds),
            "features": self.features.model_dump(mode="json"),
        }

    def scores(
        self, encoder: FeatureModel, corpus: TokenisedCorpus, context: Context
    ) -> list[SeedScore]:
        """The scores of probes on the frozen ``encoder``, one for each seed."""
        from papa.probes.evaluate import evaluate_cell

        with context.scratch() as scratch:
            return evaluate_cell(
                encoder,
                corpus,
                self.task,
                self.seeds,
                features=self.features,
                execution=context.execution,
                scratch=scratch,
                code=self.code,
                progress=context.progress,
                on_epoch=context.on_epoch,
            )


@dataclass(frozen=True, eq=False)
class WithConstantHeads(OnText, WorkerStep):
    """A step on an encoder while the first heads of an order are constant.

    Attributes:
        constants: what makes constant matrices, or outputs; None where no head is constant.
        order: which heads become constant first; None where it changes nothing.
        count: how many heads are constant.
        rankings: those whose mean the order follows, by seed; none where it follows no scores.
        draw: what a random order is drawn from; empty for another.
    """

    constants: Step | None
    task: TaskSpec
    order: Order | None
    count: int
    rankings: Mapping[int, Ranking]
    draw: tuple[int, ...]
    code: OwnCode | None = field(default=None, kw_only=True)

    def outside(self) -> dict[str, str]:
        return {**super().outside(), **code_part(self.code)}

    def inputs(self) -> dict[str, Step]:
        constants = {"constants": self.constants} if self.constants else {}
        rankings = {f"ranking {seed}": step for seed, step in self.rankings.items()}
        return {"corpus": self.corpus, **constants, **rankings}

    def spec(self) -> dict[str, Any]:
        of_heads = {"order": self.order, "count": self.count, "draw": list(self.draw)}
        return {**OnText.spec(self), **of_heads}

    def heads(self, found: Mapping[Step, ArtifactReference]) -> tuple[Head, ...]:
        """The constant heads, as (layer, head): the first of the head order."""
        return tuple(self.ranked(found)[: self.count])

    def ranked(self, found: Mapping[Step, ArtifactReference]) -> list[Head]:
        """All heads in the head order; likewise."""
        order: Order = self.order or "first_to_last"  # Any, where it changes nothing.
        rankings = {seed: found[ranking] for seed, ranking in self.rankings.items()}
        method = scored_by(order)
        scores = read_head_scores(method, rankings, self.encoder).mean if method else None
        return head_order(order, scores, self.encoder.layers, self.encoder.heads, self.draw)

    def matrices(self, found: ArtifactReference) -> ConstantMatrices:
        """The constant matrices, verified."""
        from papa.attention.constants import ConstantMatrices

        return ConstantMatrices.load(found.folder, encoder=self.encoder, slots=self.task.slots)

    def read(self, step: Step, context: Context) -> ConstantMatrices | ConstantOutputs | str:
        """The constants of a finished step, verified; or ``REUSED``."""
        if isinstance(step, ReusedBefore):
            return REUSED
        found = context.found[step]
        return step.read(found) if isinstance(step, Outputs) else self.matrices(found)


@dataclass(frozen=True, eq=False)
class Probe(WithConstantHeads, ScoringStep):
    """Train and score the task's probe while the first heads of an order are constant.

    Cells that cannot differ share a step (``papa.spec.cells``): with no head constant it has
    neither constants nor an order, with every head constant no order. Constants that are
    ``trained`` are so with the probe, from ``constants`` on.
    """

    stage: ClassVar[str] = "probe"
    version: ClassVar[int] = 5

    trained: bool
    seeds: tuple[int, ...]
    features: FeaturesSpec

    def spec(self) -> dict[str, Any]:
        of_heads = WithConstantHeads.spec(self)
        return {**ScoringStep.spec(self), **of_heads, "trained": self.trained}

    def compute(self, encoder: Encoder, context: Context) -> None:
        import numpy as np
        from safetensors.numpy import save_file

        from papa.probes.cell import score_cell
        from papa.scores.metrics import positive_name

        corpus, heads = open_corpus(context.found[self.corpus]), sorted(self.heads(context.found))
        with context.scratch() as scratch:
            scores, unseen_share = score_cell(
                encoder,
                self.read(self.constants, context) if self.constants else None,
                heads,
                corpus,
                self.task,
                self.seeds,
                trained=self.trained,
                features=self.features,
                execution=context.execution,
                scratch=scratch,
                code=self.code,
                progress=context.progress,
                on_epoch=context.on_epoch,
            )
        found = ProbeScores(
            scores=ScoredSeed.of(scores),
            positive=positive_name(self.task, corpus.label_names),
            unseen_share=unseen_share,
            constant_heads=tuple(heads),
            heads=encoder.layers * encoder.heads,
            seconds=context.seconds,
            device=str(encoder.device),
        )
        with context.published() as folder:
            found.save(folder)
            save_file(
                {"examples": np.stack([score.examples for score in scores])}, folder / EXAMPLES
            )


@dataclass(frozen=True)
class ScoredSeed:
    """The score of one seed, and its share of the seconds of training and scoring."""

    seed: int
    score: float
    seconds: float

    @classmethod
    def of(cls, scores: Sequence[SeedScore]) -> tuple[ScoredSeed, ...]:
        """Of every seed, without its examples."""
        return tuple(cls(score.seed, score.score, score.seconds) for score in scores)


@dataclass(frozen=True)
class ProbeScores:
    """What the stage found: the file ``scores.json``.

    Attributes:
        positive: the class that F1 is of; None for other metrics.
        unseen_share: of the entries of C that validation rows read, the share that the average
            never saw; None without replacement, and where C was trained.
        constant_heads: as (layer, head), sorted.
        classes: which class of the task is which of the model's own head; empty for a probe.
    """

    scores: tuple[ScoredSeed, ...]
    positive: str | None
    unseen_share: float | None
    constant_heads: tuple[tuple[int, int], ...]
    heads: int
    seconds: float
    device: str
    classes: str = ""

    def save(self, folder: Path) -> None:
        """Write it into an artifact."""
        (folder / SCORES).write_text(json.dumps(asdict(self), indent=1) + "\n")


def read_scores(found: ArtifactReference | Address) -> ProbeScores:
    """The scores of a finished probing."""
    with opened(found, SCORES) as folder:
        return TypeAdapter(ProbeScores).validate_python(json.loads((folder / SCORES).read_text()))


def read_examples(found: ArtifactReference | Address) -> Any:
    """What each validation row adds to each seed's score, float64 [seeds, rows, k]
    (``papa.scores.metrics``).
    """
    from safetensors.numpy import load_file

    with opened(found) as folder:
        examples = load_file(folder / EXAMPLES)["examples"]
        check_form(examples=((examples.ndim, examples.dtype), (3, float)))
        return examples
