"""Probes that an export has trained again, as the study trained those of its cell: the classifier
that comes along with it, and those that score it in 8 bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from papa.progress import Progress
from papa.spec.cells import Cell
from papa.spec.orders import Head
from papa.study.here import ThisProcess
from papa.study.own import Own
from papa.study.probe import Probe, read_examples, read_scores
from papa.study.stored import StoredStudy

if TYPE_CHECKING:
    from papa.attention.replacement import Constants
    from papa.corpora.corpus import TokenisedCorpus
    from papa.encoders.encoder import Encoder
    from papa.exporting.classifier import OwnClassifier, TrainedProbe
    from papa.exporting.measuring import Scored
    from papa.probes.features import FeatureModel
    from papa.probes.probes import Probe as Module
    from papa.probes.training import SeedScore
    from papa.scores.intervals import Measured


@dataclass(frozen=True)
class FinishedCell:
    """A finished cell of a study, opened: what it was computed from."""

    stored: StoredStudy
    cell: Cell
    step: Probe | Own
    corpus: TokenisedCorpus
    constants: Constants
    heads: Sequence[Head]


def trained_probe(
    of: FinishedCell, device: str, status: Any
) -> TrainedProbe | OwnClassifier | None:
    """The probe of a cell for its first seed, which no validation row has chosen, or the model's
    own head; None of embeddings, of masked words, and where code of the user's own scores or
    predicts.
    """
    from papa.attention.replacement import replaced
    from papa.exporting.classifier import TrainedProbe
    from papa.probes.evaluate import build_probe
    from papa.scores.metrics import positive_class

    step, corpus = of.step, of.corpus
    if isinstance(step, Own):
        return _own(of, step)
    if step.code or corpus.kind == "mlm":
        return None
    first = replace(step, seeds=step.seeds[:1])

    def train(encoder: Encoder, progress: Progress) -> Module:
        probe = build_probe(encoder, corpus, step.task, first.seeds)
        with replaced(encoder, of.constants, of.heads):
            _evaluate(encoder, of, first, progress, probe)
        return probe

    def progress(done: int, total: int) -> None:
        status.update(f"training its classifier, {100 * done / total:.0f} % …")

    probe = ThisProcess(device).run(train, encoder=step.encoder, arguments={}, progress=progress)
    names = tuple(corpus.label_names or (step.task.name,))
    positive = positive_class(step.task, corpus.label_names)
    (examples, *_) = read_examples(of.stored.found[step])
    return TrainedProbe(probe, first.seeds[0], names, step.task.metric, positive, examples)


def _own(of: FinishedCell, step: Own) -> OwnClassifier | None:
    from papa.exporting.classifier import CLASSES, OwnClassifier, OwnHead
    from papa.probes.own_model import class_names, load_own, own_class
    from papa.study.own import read_answers

    name, split = own_class(step.task, step.encoder), of.corpus.split("validation")
    answers, _ = read_answers(step.answers.reference(of.stored.store))
    by_token = name.endswith("ForTokenClassification")
    if name not in CLASSES or "logits" not in answers or by_token != split.label_per_token:
        return None
    model = load_own(step.encoder, name)
    return OwnClassifier(OwnHead(model), name, class_names(model), answers)


def _evaluate(
    encoder: FeatureModel,
    of: FinishedCell,
    step: Probe,
    progress: Progress,
    probe: Module | None = None,
) -> list[SeedScore]:
    """The scores of probes of the step's seeds, which are trained as in the study."""
    from papa.probes.evaluate import evaluate_cell

    with TemporaryDirectory() as scratch:
        return evaluate_cell(
            encoder,
            of.corpus,
            step.task,
            step.seeds,
            features=step.features,
            execution=of.stored.inputs.study.execution,
            scratch=Path(scratch),
            progress=progress,
            probe=probe,
        )


def int8_scores(of: FinishedCell, status: Any) -> Scored:
    """What scores an encoder in int8 as the study scored a cell: same rows, probes and seeds.

    Drops are from the study's original, paired by seed and example. A model's own head is no part
    of the export, so its use has no score here; nor has what code of the user's own scores, which
    an export does not run.
    """
    from papa.attention.replacement import replaced
    from papa.encoders.encoder import Encoder
    from papa.exporting.onnx import GraphFeatures
    from papa.scores.intervals import NOT_KNOWN, Measured, clipped, joint, paired_drop

    step, original = of.step, _original(of)

    def scored(encoder: FeatureModel, constant: bool) -> dict[str, float | None] | None:
        if isinstance(step, Own) or step.code:
            return None
        in_graph = isinstance(encoder, GraphFeatures)
        if in_graph and step.task.probe.encoder_dropout:
            return None  # A graph drops nothing.
        where = " in onnxruntime" if in_graph else ""

        def progress(done: int, total: int) -> None:
            status.update(f"scoring int8{where}, {100 * done / total:.0f} % …")

        with (
            replaced(encoder, of.constants, of.heads if constant else ())
            if isinstance(encoder, Encoder)
            else nullcontext()
        ):
            found = _evaluate(encoder, of, step, progress)
        measured = Measured.of(
            step.task.metric,
            {scored.seed: scored.score for scored in found},
            [scored.examples for scored in found],
        )
        score = clipped(step.task.metric, joint(measured))
        drop = NOT_KNOWN if original is None else paired_drop(original, measured)
        numbers = {
            "mean": score.mean,
            "low": score.low,
            "high": score.high,
            "drop": drop.mean,
            "drop_low": drop.low,
            "drop_high": drop.high,
        }
        return {name: None if math.isnan(one) else one for name, one in numbers.items()}

    return scored


def _original(of: FinishedCell) -> Measured | None:
    """The study's scores with every head input-dependent; None where it has none."""
    from papa.study.results import measured_of

    stored, cell = of.stored, replace(of.cell, fraction=1.0)
    if cell not in stored.steps.cells or not stored.has(cell):
        return None
    steps = stored.steps.cells[cell]
    found = [stored.found[step] for step in steps]
    parts = [(read_scores(one).scores, read_examples(one)) for one in found]
    return measured_of(steps[0].task.metric, parts, found[0].path)
