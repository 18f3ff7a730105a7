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
    from papa.exporting.classifier import OwnClassifier, TrainedProbe
    from papa.probes.probes import Probe as Module


def trained_probe(
    stored: StoredStudy,
    step: Probe | Own,
    corpus: TokenisedCorpus,
    constants: Constants,
    heads: Sequence[Head],
    device: str,
    status: Any,
) -> TrainedProbe | OwnClassifier | None:
    """The probe of a finished cell for its first seed, which no validation row has chosen, or the
    model's own head; None of embeddings, of masked words, and where code of the user's own scores
    or predicts.
    """
    from papa.exporting.classifier import TrainedProbe
    from papa.scores.metrics import positive_class

    if isinstance(step, Own):
        return _own(step, stored, corpus)
    if step.code or corpus.kind == "mlm":
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
        read_examples(stored.found[step])[0],
    )


def _own(step: Own, stored: StoredStudy, corpus: TokenisedCorpus) -> OwnClassifier | None:
    from papa.exporting.classifier import CLASSES, OwnClassifier, OwnHead
    from papa.probes.own import class_names, load_own, own_class
    from papa.study.own import read_answers

    name, split = own_class(step.task, step.encoder), corpus.split("validation")
    answers, _ = read_answers(step.answers.reference(stored.store))
    by_token = name.endswith("ForTokenClassification")
    if name not in CLASSES or "logits" not in answers or by_token != split.label_per_token:
        return None
    model = load_own(step.encoder, name)
    return OwnClassifier(OwnHead(model), name, class_names(model), answers)


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
