"""Stages ``answers`` and ``own``: what a model's own head answers, and what that scores."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import TypeAdapter
from safetensors.numpy import load_file, save_file

from papa.encoders.reference import EncoderReference
from papa.scores.metrics import positive_name
from papa.scores.own import OwnCode
from papa.spec import TaskSpec
from papa.spec.orders import Head
from papa.storage.artifacts import ArtifactReference, opened
from papa.study.stages.probe import ConstantHeads, ProbeScores, ScoredSeed
from papa.study.step import Context, Step, stage

ANSWERS, ABOUT = "answers.safetensors", "answers.json"


@stage("answers", version=1)
def answers(
    run: Context,
    encoder: EncoderReference,
    corpus: Step,
    heads: ConstantHeads,
    task: TaskSpec,
    code: OwnCode | None = None,
) -> None:
    """Have a model's own head answer the validation rows while some heads are constant; ``code``
    has a score of the user's own of what it puts out, if any.
    """
    from papa.ablation.substitutes import ByPosition, OutputsBySlot, Reused
    from papa.attention.constants import ConstantMatrices
    from papa.attention.outputs import ConstantOutputs
    from papa.probes.evaluate import unseen_by
    from papa.probes.own import class_names
    from papa.scores.answers import class_ids, classes_told

    own_head = run.own_model(task, encoder)
    read: Any = heads.constants and heads.constants.read(run.found, encoder, task)
    substitute = Reused() if isinstance(read, str) else read
    if isinstance(read, ConstantOutputs):
        substitute = OutputsBySlot(read.to(own_head.model.device))
    elif isinstance(read, ConstantMatrices):
        substitute = ByPosition(read.matrices)
    text, chosen, own = run.corpus(corpus), heads.chosen(run.found), class_names(own_head.model)
    classes_told(text.label_names, own, task)  # Refused before it runs.
    score, ids = code.score if code else None, None
    if score and text.label_names:
        ids = class_ids(text.label_names, own, task)
    split = text.split("validation")
    found = own_head.answers(
        split,
        substitute,
        chosen,
        embeddings=task.of_embeddings,
        score=score,
        ids=ids,
        progress=run.progress,
    )
    about = About(own, chosen, unseen_by(read, split))
    with run.published() as folder:
        (folder / ABOUT).write_text(json.dumps(asdict(about)) + "\n")
        save_file(found, folder / ANSWERS)


@dataclass(frozen=True)
class About:
    """What else the stage ``answers`` found: the classes of the model's head, the constant heads as
    (layer, head), sorted, and the unseen share, as of a probe.
    """

    classes: tuple[str, ...]
    constant_heads: tuple[Head, ...]
    unseen_share: float | None


def read_answers(made: ArtifactReference) -> tuple[dict[str, Any], About]:
    """What a finished step of stage ``answers`` holds."""
    with opened(made, ANSWERS, ABOUT) as folder:
        about = TypeAdapter(About).validate_json((folder / ABOUT).read_text())
        return load_file(folder / ANSWERS), about


@stage("own", version=1)
def own(
    run: Context,
    corpus: Step,
    heads: ConstantHeads,
    answers: Step,
    original: Step,
    task: TaskSpec,
    seeds: tuple[int, ...],
    code: OwnCode | None = None,
) -> None:
    """Score the answers of a model's own head; the artifact is as that of a probe, which has the
    same for all seeds, as nothing is trained.
    """
    from papa.scores.answers import classes_told, own_score

    text = run.corpus(corpus)
    (before, _), (after, about) = (read_answers(run.found[step]) for step in (original, answers))
    split, names = text.split("validation"), text.label_names
    scored = own_score(task, before, after, split, names, about.classes, code)
    document = ProbeScores(
        scores=tuple(ScoredSeed(seed, scored.score, 0.0) for seed in seeds),
        positive=positive_name(task, names),
        unseen_share=about.unseen_share,
        constant_heads=about.constant_heads,
        heads=heads.size[0] * heads.size[1],
        seconds=run.seconds,
        device="cpu",
        classes=classes_told(names, about.classes, task),
    )
    with run.published() as folder:
        document.save(folder, [scored.examples] * len(seeds))
