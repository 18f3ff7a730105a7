"""The probe that comes along with an export: trained again as the study trained that of its first
seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from papa.progress import Progress
from papa.spec import ExecutionSpec
from papa.spec.orders import Head
from papa.study.here import ThisProcess
from papa.study.own import Own
from papa.study.probe import Probe, read_examples
from papa.study.stored import StoredStudy

if TYPE_CHECKING:
    from papa.attention.replacement import Constants
    from papa.corpora.corpus import TokenisedCorpus
    from papa.encoders.encoder import Encoder
    from papa.exporting.trained import TrainedProbe
    from papa.probes.probes import Probe as Module


def trained_probe(
    stored: StoredStudy,
    step: Probe | Own,
    corpus: TokenisedCorpus,
    constants: Constants,
    heads: Sequence[Head],
    device: str,
    status: Any,
) -> TrainedProbe | None:
    """The probe of a finished cell for its first seed, which no validation row has chosen; None of
    a model's own head, of masked words, and where code of the user's own scores or predicts.
    """
    from papa.exporting.trained import TrainedProbe
    from papa.scores.metrics import positive_class

    if isinstance(step, Own) or step.code or corpus.kind == "mlm":
        return None
    probe = ThisProcess(device).run(
        _train,
        encoder=step.encoder,
        arguments={
            "step": step,
            "corpus": corpus,
            "constants": constants,
            "heads": heads,
            "execution": stored.inputs.study.execution,
        },
        progress=lambda done, total: status.update(
            f"training its classifier, {100 * done / total:.0f} % …"
        ),
    )
    return TrainedProbe(
        probe,
        step.seeds[0],
        tuple(corpus.label_names or (step.task.name,)),
        step.task.metric,
        positive_class(step.task, corpus.label_names),
        read_examples(stored.found[step].folder)[0],
    )


def _train(
    encoder: Encoder,
    step: Probe,
    corpus: TokenisedCorpus,
    constants: Constants,
    heads: Sequence[Head],
    execution: ExecutionSpec,
    progress: Progress,
) -> Module:
    from papa.attention.replacement import replaced
    from papa.probes.evaluate import build_probe, evaluate_cell

    seeds = step.seeds[:1]
    probe = build_probe(encoder, corpus, step.task, seeds)
    with replaced(encoder, constants, heads), TemporaryDirectory() as scratch:
        evaluate_cell(
            encoder,
            corpus,
            step.task,
            seeds,
            features=step.features,
            execution=execution,
            scratch=Path(scratch),
            progress=progress,
            probe=probe,
        )
    return probe
