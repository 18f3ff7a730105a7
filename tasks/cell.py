"""A cell of a study: which heads are constant in it, its scores, and the baselines beside them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float
from pydantic import TypeAdapter
from safetensors.numpy import load_file, save_file

from papa.models.reference import EncoderReference
from papa.ranking.orders import head_order, scoring_method
from papa.scores.constant_answers import ConstantAnswer
from papa.spec import Order, TaskSpec
from papa.spec.orders import Head, heads_of_units
from papa.storage.artifacts import ArtifactReference, verified
from papa.tasks.context import Context
from papa.tasks.head_scores import StepsBySeed, read_head_scores
from papa.tasks.step import Step
from papa.tasks.substitutes import SubstituteSource

if TYPE_CHECKING:
    from papa.heads.substitutes import Substitute

SCORES_FILE = "scores.json"
BASELINE = "baseline.json"
EXAMPLES = "examples.safetensors"


@dataclass(frozen=True)
class ConstantHeads:
    """Which heads of an encoder are constant in a cell, and what takes their attention's place.

    Attributes:
        size: The encoder's (layers, heads in each layer).
        substitute: What constant heads use; None where no head is constant.
        order: The head order; None where it changes nothing, as all heads or none are constant.
        count: How many heads are constant: the first of the order.
        score_steps: The steps whose scores the order follows; the order is that of their mean.
        draw: Of a random order its seed, or seeds; of external scores, from a file or a function,
            the positions of all heads in the order (layer · H + head). A drawn order of groups is
            stored as such positions too.
    """

    size: tuple[int, int]
    substitute: SubstituteSource | None = None
    order: Order | None = None
    count: int = 0
    score_steps: StepsBySeed = field(default_factory=dict)
    draw: tuple[int, ...] = ()

    def units_in_order(self, artifacts: Mapping[Step, ArtifactReference]) -> list[Head]:
        """Return all units in order, the first to become constant first. Units are heads, or groups
        where scores are of groups.
        """
        # Any order will do where it changes nothing.
        order: Order = self.order or "first_to_last"
        method = scoring_method(order)
        scores = None
        layers, units = self.size
        if method:
            by_seed = {seed: artifacts[step] for seed, step in self.score_steps.items()}
            scores = read_head_scores(method, by_seed).mean
            layers, units = scores.shape
        return head_order(order, scores, layers, units, self.draw)

    def heads_in_order(self, artifacts: Mapping[Step, ArtifactReference]) -> list[Head]:
        """Return all heads as (layer, head), the first to become constant first."""
        units = self.units_in_order(artifacts)
        layers, heads = self.size
        return heads_of_units(units, layers * heads // len(units))

    def select(self, artifacts: Mapping[Step, ArtifactReference]) -> tuple[Head, ...]:
        """Return the constant heads as (layer, head), sorted."""
        return tuple(sorted(self.heads_in_order(artifacts)[: self.count]))

    def load_substitute(
        self, context: Context, encoder: EncoderReference, task: TaskSpec
    ) -> Substitute | None:
        """Load what constant heads use; None where no head is constant."""
        if self.substitute is None:
            return None
        source = self.substitute.source
        artifact = context.artifacts[source] if source else None
        return self.substitute.load(artifact, encoder, task)


@dataclass(frozen=True)
class ScoredSeed:
    """The score of one seed, and its share of the seconds of training and scoring."""

    seed: int
    score: float
    seconds: float


@dataclass(frozen=True)
class CellScores:
    """The scores of a cell, as ``scores.json`` holds them.

    Attributes:
        scores: The score of every seed.
        positive: The class that F1 is of; None for other metrics.
        unseen_share: Of the entries of C that validation rows read, the share that the average
            never observed; None where no head is constant, and where C was trained.
        constant_heads: The constant heads as (layer, head), sorted.
        classes: Which class of the task is which of the model's native head, in words.
        same_answer: What a native head answers to every example; "" where answers differ.
    """

    scores: tuple[ScoredSeed, ...]
    positive: str | None
    unseen_share: float | None
    constant_heads: tuple[Head, ...]
    classes: str = ""
    same_answer: str = ""

    def save(self, folder: Path, examples_by_seed: Iterable[np.ndarray]) -> None:
        """Write the scores into an artifact's folder, and for each seed what each validation row
        adds to its score, [rows, k].
        """
        (folder / SCORES_FILE).write_text(json.dumps(asdict(self), indent=1) + "\n")
        save_file({"examples": np.stack([*examples_by_seed])}, folder / EXAMPLES)


def read_scores(artifact: ArtifactReference) -> CellScores:
    """Read the scores of a finished cell."""
    content = (verified(artifact, SCORES_FILE) / SCORES_FILE).read_bytes()
    return TypeAdapter(CellScores).validate_json(content)


def read_examples(artifact: ArtifactReference) -> Float[np.ndarray, "seeds rows k"]:
    """Read what each validation row adds to each seed's score, float64."""
    return load_file(verified(artifact, EXAMPLES) / EXAMPLES)["examples"]


def save_baseline(
    folder: Path,
    one_answer: ConstantAnswer,
    word_embeddings: Sequence[ScoredSeed] = (),
    examples_by_seed: Sequence[Float[np.ndarray, "rows k"]] = (),
) -> None:
    """Write baselines into an artifact's folder: the best score that one answer for every
    validation row gets, and for each seed that of a probe on word embeddings alone, none for a
    native head, with what each validation row adds to it.
    """
    document = {
        "always_one_answer": {"score": one_answer.score, "answer": one_answer.answer},
        "word_embeddings": [asdict(scored_seed) for scored_seed in word_embeddings],
    }
    tensors = {
        "always_one_answer": one_answer.examples,
        # [0, rows, k] without seeds.
        "word_embeddings": np.array(examples_by_seed).reshape(-1, *one_answer.examples.shape),
    }
    (folder / BASELINE).write_text(json.dumps(document, indent=1) + "\n")
    save_file(tensors, folder / EXAMPLES)


def read_baseline(
    artifact: ArtifactReference,
) -> tuple[ConstantAnswer, tuple[ScoredSeed, ...], Float[np.ndarray, "seeds rows k"]]:
    """Read what ``save_baseline`` wrote."""
    folder = verified(artifact, BASELINE, EXAMPLES)
    document = json.loads((folder / BASELINE).read_text())
    tensors = load_file(folder / EXAMPLES)
    answer = document["always_one_answer"]
    one_answer = ConstantAnswer(answer["score"], tensors["always_one_answer"], answer["answer"])
    scored = TypeAdapter(tuple[ScoredSeed, ...]).validate_python(document["word_embeddings"])
    return one_answer, scored, tensors["word_embeddings"]
