"""Stage ``probe``: the scores of one cell of a study, all seeds."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from papa.encoders.reference import EncoderReference
from papa.errors import SpecError
from papa.progress import Progress
from papa.spec import ExecutionSpec, FeaturesSpec, TaskSpec
from papa.storage.artifacts import Address, ArtifactReference, fetched, is_complete, published, verify
from papa.storage.cache import scratch_folder
from tasks.step import Session, Step, identity
from tasks.tokenise import open_corpus

SCORES = "scores.json"
EXAMPLES = "examples.safetensors"


@dataclass(frozen=True)
class Probe(Step):
    """Train and score the task's probe while ``heads`` are constant.

    The key is on the set of constant heads, so cells that cannot differ share it (``papa.spec.cells``).

    Attributes:
        encoder: whose features.
        corpus: the task's tokenised text.
        constants: the constant matrices; None where no head is constant.
        task: its metric and probe.
        heads: the constant heads as (layer, head).
        trained: whether the constant matrices are trained with the probe, from ``constants`` on.
        seeds: one probe each.
        features: in what precision features are kept.
        ranking: the head order that ``heads`` were taken from; None where no training led to them.
    """

    stage: ClassVar[str] = "probe"
    version: ClassVar[int] = 3

    encoder: EncoderReference
    corpus: ArtifactReference
    constants: ArtifactReference | None
    task: TaskSpec
    heads: tuple[tuple[int, int], ...]
    trained: bool
    seeds: tuple[int, ...]
    features: FeaturesSpec
    ranking: ArtifactReference | None = None

    def spec(self) -> dict[str, Any]:
        return {
            "encoder": identity(self.encoder),
            "task": self.task.model_dump(
                mode="json", include={"kind", "labels", "slots", "metric", "positive", "probe"}
            ),
            "heads": sorted(map(list, self.heads)),
            "trained": self.trained and bool(self.heads),
            "seeds": list(self.seeds),
            "features": self.features.model_dump(mode="json"),
        }

    def upstream(self) -> dict[str, str | None]:
        return {
            "encoder": self.encoder.digest,
            "corpus": self.corpus.digest,
            "constants": self.constants.digest if self.constants and self.heads else None,
        }

    def origins(self) -> tuple[str, ...]:
        return (self.ranking.digest,) if self.ranking else ()

    def run(self, session: Session, progress: Progress) -> None:
        session.pool.run(
            probe,
            encoder=self.encoder,
            arguments={
                "reference": self.encoder,
                "corpus": self.corpus,
                "constants": self.constants,
                "task": self.task,
                "heads": sorted(self.heads),
                "trained": self.trained and bool(self.heads),
                "seeds": self.seeds,
                "features": self.features,
                "execution": session.execution,
                "scratch": None if session.store.is_remote else session.store.scratch / f"features-{self.key[:16]}",
                "folder": self.folder(session.store),
                "metadata": self.metadata(),
            },
            progress=progress,
        )


def probe(
    *,
    encoder: Any,
    reference: EncoderReference,
    corpus: ArtifactReference,
    constants: ArtifactReference | None,
    task: TaskSpec,
    heads: Sequence[tuple[int, int]],
    trained: bool,
    seeds: Sequence[int],
    features: FeaturesSpec,
    execution: ExecutionSpec,
    scratch: Path | None,
    folder: Address,
    metadata: Mapping[str, Any],
    progress: Progress,
) -> None:
    """Publish the scores of one cell at ``folder``, unless they are there by now."""
    if is_complete(folder):
        return
    import numpy as np
    from safetensors.numpy import save_file

    from papa.attention.constants import ConstantMatrices
    from papa.attention.replacement import replaced
    from papa.probes.evaluate import evaluate_cell
    from papa.scores.metrics import positive_name

    started = time.monotonic()
    tokenised = open_corpus(corpus.folder, corpus.digest)
    unseen: float | None = None
    with features_folder(scratch) as place:
        options: dict[str, Any] = {
            "features": features,
            "execution": execution,
            "scratch": place,
            "progress": progress,
        }
        if not heads:
            scores = evaluate_cell(encoder, tokenised, task, seeds, **options)
        else:
            assert constants is not None
            matrices = ConstantMatrices.load(constants.folder, encoder=reference, slots=task.slots)
            if trained:
                scores = _trained_cell()(encoder, matrices, heads, tokenised, task, seeds, **options)
            else:
                with replaced(encoder, matrices, heads) as coverage:
                    scores = evaluate_cell(encoder, tokenised, task, seeds, **options)
                unseen = coverage.unseen_share
    seconds = time.monotonic() - started
    document = {
        "scores": scores_of(scores),
        "positive": positive_name(task, tokenised.label_names),
        "coverage": unseen,
        "constant_heads": [list(head) for head in heads],
        "heads": encoder.layers * encoder.heads,
        "seconds": seconds,
        "device": str(encoder.device),
    }
    with published(folder, {**metadata, "seconds": seconds}) as published_folder:
        (published_folder / SCORES).write_text(json.dumps(document, indent=1) + "\n")
        save_file({"examples": np.stack([one.examples for one in scores])}, published_folder / EXAMPLES)


@contextmanager
def features_folder(place: Path | None) -> Iterator[Path]:
    """Where a cell keeps features while it runs: at ``place``, or in this machine's cache."""
    if place is None:
        with scratch_folder() as folder:
            yield folder
        return
    # A killed call may have left its features there.
    shutil.rmtree(place, ignore_errors=True)
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def read_scores(address: Address) -> dict[str, Any]:
    """What ``probe`` published.

    Its keys: scores (seed, score, seconds), positive, coverage, constant_heads, heads, seconds, device.

    Raises:
        ArtifactError: the artifact is damaged.
    """
    folder = fetched(address)
    verify(folder, SCORES)
    return json.loads((folder / SCORES).read_text())


def read_examples(address: Address) -> Any:
    """What each validation row adds to each seed's score, float64 [seeds, rows, k]: ``papa.scores.examples``.

    Raises:
        ArtifactError: the artifact is damaged.
    """
    from safetensors.numpy import load_file

    folder = fetched(address)
    verify(folder)
    return load_file(folder / EXAMPLES)["examples"]


def scores_of(scores: Sequence[Any]) -> list[dict[str, Any]]:
    """What ``evaluate_cell`` returns, as JSON."""
    return [{"seed": one.seed, "score": one.score, "seconds": one.seconds} for one in scores]


def _trained_cell() -> Any:
    try:
        from papa.probes.evaluate import evaluate_trained_cell
    except ImportError:
        raise SpecError(
            "constants of kind 'trained' are not available yet: use average, identity, toeplitz or zeros"
        ) from None
    return evaluate_trained_cell
