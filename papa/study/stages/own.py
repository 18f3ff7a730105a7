"""Stages ``answers`` and ``own``: what a model's own head answers, and what that scores."""

from __future__ import annotations

import json
from typing import Any

from safetensors.numpy import load_file, save_file

from papa.encoders.reference import EncoderReference
from papa.scores.metrics import positive_name
from papa.scores.own import OwnCode
from papa.spec import TaskSpec
from papa.storage.artifacts import ArtifactReference, verified
from papa.study.stages.probe import ConstantHeads, ProbeScores, ScoredSeed
from papa.study.step import Context, Step, stage

ANSWERS, ABOUT = "answers.safetensors", "answers.json"


@stage("answers", version=2)
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
    from papa.probes.evaluate import unseen_by
    from papa.probes.own import class_names
    from papa.scores.answers import class_ids, classes_told

    own_head = run.own_model(task, encoder)
    read = heads.read(run, encoder, task)
    text, chosen, own = run.corpus(corpus), heads.chosen(run.found), class_names(own_head.model)
    classes_told(text.label_names, own, task)  # Refused before it runs.
    score, ids = code.score if code else None, None
    if score and text.label_names:
        ids = class_ids(text.label_names, own, task)
    split = text.split("validation")
    found = own_head.answers(
        split,
        read,
        chosen,
        embeddings=task.of_embeddings,
        score=score,
        ids=ids,
        progress=run.progress,
    )
    about = {"classes": own, "constant_heads": chosen, "unseen_share": unseen_by(read, split)}
    with run.published() as folder:
        (folder / ABOUT).write_text(json.dumps(about) + "\n")
        save_file(found, folder / ANSWERS)


def read_answers(made: ArtifactReference) -> tuple[dict[str, Any], dict[str, Any]]:
    """The answers of a finished step of stage ``answers``; and the classes of the model's head, the
    constant heads, sorted, and the unseen share, as of a probe.
    """
    folder = verified(made, ANSWERS, ABOUT)
    return load_file(folder / ANSWERS), json.loads((folder / ABOUT).read_text())


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
    classes = tuple(about["classes"])
    scored = own_score(task, before, after, split, names, classes, code)
    document = ProbeScores(
        scores=tuple(ScoredSeed(seed, scored.score, 0.0) for seed in seeds),
        positive=positive_name(task, names),
        unseen_share=about["unseen_share"],
        constant_heads=tuple(map(tuple, about["constant_heads"])),
        heads=heads.size[0] * heads.size[1],
        seconds=run.seconds,
        device="cpu",
        classes=classes_told(names, classes, task),
    )
    with run.published() as folder:
        document.save(folder, [scored.examples] * len(seeds))
