"""The scores of heads that finished steps hold: how they are stored, and read."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from safetensors.numpy import load_file, save_file

from papa.ranking.causal_gates import CausalGateScores
from papa.ranking.head_scores import HeadScores, TrainedLambda
from papa.ranking.orders import SCORING_METHODS
from papa.storage.artifacts import ArtifactReference, read_metadata, verified
from papa.tasks.context import Context
from papa.tasks.step import Step

StepsBySeed: TypeAlias = Mapping[int, Step]
"""The steps that score heads by one method, by ranking seed."""
Rankings: TypeAlias = Mapping[str, StepsBySeed]
"""The steps that score heads, by method: "lambda", or a name of ``SCORING_METHODS``."""
ArtifactsBySeed: TypeAlias = Mapping[int, ArtifactReference]
"""Their finished artifacts, by ranking seed."""
LAMBDA = "lambda.safetensors"
SCORES = "scores.safetensors"
_PULLED_OPEN = "causal_gates kept"
"""The name of gates that were pulled open, beside those of the score, which were pulled closed."""
_SETTLED = "causal_gates settled"
"""The name of whether gates no longer moved."""
_STANDARD_ERROR = "{} ± 1"
"""The name of a method's standard error, in the file that holds its values by its name."""


def publish_head_scores(
    context: Context,
    scores_by_method: Mapping[str, HeadScores],
    partition: int | None,
    **facts: Any,
) -> None:
    """Publish the scores of one seed, [L, H] by method, as the artifact of the step that runs.
    ``partition`` is of the shuffle of all rows of which it read a part; None if it read all.
    """
    tensors: dict[str, np.ndarray] = {}
    for method, scores in scores_by_method.items():
        tensors[method] = np.ascontiguousarray(scores.by_seed[0])
        if scores.standard_error is not None:
            error = np.ascontiguousarray(scores.standard_error)
            tensors[_STANDARD_ERROR.format(method)] = error
        if isinstance(scores, CausalGateScores):
            tensors[_PULLED_OPEN] = scores.pulled_open
            tensors[_SETTLED] = scores.settled
    with context.published(
        order_of_rows=partition,
        evaluations={method: scores.evaluations for method, scores in scores_by_method.items()},
        draws={method: scores.samples for method, scores in scores_by_method.items()},
        **facts,
    ) as folder:
        save_file(tensors, folder / SCORES)


def read_head_scores(
    method: str, artifacts: ArtifactsBySeed, controls: ArtifactsBySeed = MappingProxyType({})
) -> HeadScores | TrainedLambda:
    """Read the scores of all heads by "lambda", or a name of ``SCORING_METHODS``; ``controls`` are
    λ trained on shuffled labels.
    """
    native = method == "causal_gates" or any(
        read_metadata(artifact.path).get("native") for artifact in artifacts.values()
    )
    if method == "lambda":
        return TrainedLambda(
            _read_lambdas(artifacts),
            distinct_rows=_have_distinct_rows(artifacts),
            shuffled=_read_lambdas(controls),
            native=native,
        )
    scores: list[HeadScores] = []
    for artifact in artifacts.values():
        tensors = load_file(verified(artifact) / SCORES)
        by_seed = tensors[method][None]
        if method == "causal_gates":
            scores.append(
                CausalGateScores(
                    by_seed, pulled_open=tensors[_PULLED_OPEN], settled=tensors[_SETTLED]
                )
            )
            continue
        samples = int(read_metadata(artifact.path)["draws"][method])
        error = tensors.get(_STANDARD_ERROR.format(method))
        scores.append(HeadScores(by_seed, error, samples=samples))
    # Trained on a native head, seeds differ in nothing but their rows and their order.
    differ_by_rows = native and SCORING_METHODS[method].is_trained
    has_interval = not differ_by_rows or _have_distinct_rows(artifacts)
    return type(scores[0]).from_seeds(scores, has_interval)


def _have_distinct_rows(artifacts: ArtifactsBySeed) -> bool:
    """Return whether ranking seeds share no row: all read parts of one shuffle of the rows."""
    partitions = {
        read_metadata(artifact.path).get("order_of_rows") for artifact in artifacts.values()
    }
    return len(partitions) == 1 and None not in partitions


def _read_lambdas(artifacts: ArtifactsBySeed) -> dict[int, np.ndarray]:
    return {
        seed: load_file(verified(artifact) / LAMBDA)["lambda"]
        for seed, artifact in artifacts.items()
    }
