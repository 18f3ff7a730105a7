"""What a study's scores are worth, for MLflow: the baselines of each encoder and task, and whether they are beaten."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from papa.artifacts import ArtifactReference

BEATS_BASELINE = "papa.beats_baseline"
"""The tag that says whether drops tell anything: ``yes``, ``no``, or why nobody can tell."""


@dataclass(frozen=True)
class Worth:
    """Of one encoder on one task.

    Attributes:
        verdict: the tag's value.
        baselines: score by name; those that were measured.
    """

    verdict: str
    baselines: Mapping[str, float]


def worth_of(results: ArtifactReference) -> dict[tuple[str, str], Worth]:
    """Read it from a study's results, by model and task."""
    from papa.reporting.baselines import verdict
    from papa.reporting.summary import read_summary

    summary = read_summary(results.folder / "summary.csv").drop_duplicates(["model", "task"])
    return {
        (point["model"], point["task"]): Worth(
            verdict(point),
            {name: point[name] for name in ("always_one_answer", "word_embeddings") if not math.isnan(point[name])},
        )
        for point in summary.to_dict("records")
    }
