"""The task's score of an export in 8 bits: probes as the study's, trained on what int8 computes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from papa.spec.cells import Cell
from papa.spec.orders import Head
from papa.study.own import Own
from papa.study.probe import Probe, read_examples, read_scores
from papa.study.stored import StoredStudy

if TYPE_CHECKING:
    from papa.attention.replacement import Constants
    from papa.corpora.corpus import TokenisedCorpus
    from papa.exporting.measuring import Scored
    from papa.probes.features import FeatureModel
    from papa.scores.intervals import Measured


def int8_scores(
    stored: StoredStudy,
    cell: Cell,
    step: Probe | Own,
    corpus: TokenisedCorpus,
    constants: Constants,
    heads: Sequence[Head],
    status: Any,
) -> Scored:
    """What scores an encoder in int8 as the study scored a cell: same rows, probes and seeds.

    Drops are from the study's original, paired by seed and example. A model's own head is no part
    of the export, so its use has no score here; nor has what code of the user's own scores, which
    an export does not run.
    """
    from papa.attention.replacement import replaced
    from papa.encoders.encoder import Encoder
    from papa.exporting.onnx import GraphFeatures
    from papa.probes.evaluate import evaluate_cell
    from papa.scores.intervals import NOT_KNOWN, Measured, clipped, joint, paired_drop

    original = _original(stored, cell)

    def scored(encoder: FeatureModel, constant: bool) -> dict[str, float | None] | None:
        if isinstance(step, Own) or step.code:
            return None
        in_graph = isinstance(encoder, GraphFeatures)
        if in_graph and step.task.probe.encoder_dropout:
            return None  # A graph drops nothing.
        with (
            TemporaryDirectory() as scratch,
            replaced(encoder, constants, heads if constant else ())
            if isinstance(encoder, Encoder)
            else nullcontext(),
        ):
            found = evaluate_cell(
                encoder,
                corpus,
                step.task,
                step.seeds,
                features=step.features,
                execution=stored.inputs.study.execution,
                scratch=Path(scratch),
                progress=lambda done, total: status.update(
                    f"scoring int8{' in onnxruntime' if in_graph else ''}, "
                    f"{100 * done / total:.0f} % …"
                ),
            )
        measured = Measured.of(
            step.task.metric,
            {scored.seed: scored.score for scored in found},
            [scored.examples for scored in found],
        )
        score = clipped(step.task.metric, joint(measured))
        drop = NOT_KNOWN if original is None else paired_drop(original, measured)
        numbers = (score.mean, score.low, score.high, drop.mean, drop.low, drop.high)
        return {
            name: None if math.isnan(number) else number
            for name, number in zip(
                ("mean", "low", "high", "drop", "drop_low", "drop_high"), numbers, strict=True
            )
        }

    return scored


def _original(stored: StoredStudy, cell: Cell) -> Measured | None:
    """The study's scores with every head input-dependent; None where it has none."""
    from papa.study.results import measured_of

    cell = replace(cell, fraction=1.0)
    if cell not in stored.steps.cells or not stored.has(cell):
        return None
    steps = stored.steps.cells[cell]
    parts = [
        (read_scores(found).scores, read_examples(found))
        for found in (stored.found[step] for step in steps)
    ]
    return measured_of(steps[0].task.metric, parts, stored.found[steps[0]].path)
