"""Native head: the task head that a model came with answers, and the answers are scored.

Nothing is trained. ``answer`` runs the model while some heads are constant; ``score_answers``
compares its answers with the task's labels, or with those of the original model. Metrics of one
task share the answers. ``one_answer`` scores the only baseline that a native head has.
"""

import json
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from papa.models.reference import EncoderReference
from papa.scores.answers import classes_in_words, same_answer, score_on_task
from papa.scores.constant_answers import best_constant_answer
from papa.scores.custom import CustomCode
from papa.scores.metrics import positive_name
from papa.spec import TaskSpec
from papa.spec.task import LOSS
from papa.storage.artifacts import ArtifactReference, verified
from papa.tasks.cell import CellScores, ConstantHeads, ScoredSeed, save_baseline
from papa.tasks.context import Context
from papa.tasks.step import Step, stage
from papa.text.corpus import open_corpus

ANSWERS = "answers.safetensors"
ANSWER_FACTS = "answers.json"


@stage("answer", version=5)
def answer(
    context: Context,
    encoder: EncoderReference,
    text: Step,
    heads: ConstantHeads,
    task: TaskSpec,
    code: CustomCode | None = None,
) -> None:
    """Let a model's native head answer the validation rows while some heads are constant.

    In: the tokenised text, the substitute, head scores, and the model's files. Out: the answers of
    each row. Where: a worker.
    """
    from papa.native.observing import unseen_by_position
    from papa.native.outputs import class_names, has_many_labels

    substitute = heads.load_substitute(context, encoder, task)
    corpus = open_corpus(context.artifacts[text])
    constant_heads = heads.select(context.artifacts)
    validation = corpus.split("validation")
    score = code.score if code else None
    native = context.open_native_head(task, encoder, validation, corpus.label_names, score)
    answers = native.all_answers(substitute, constant_heads, context.progress)
    about = {
        # Of a head that answers each label by itself no class is the answer to a text.
        "classes": () if has_many_labels(native.model.config) else class_names(native.model),
        "constant_heads": constant_heads,
        "unseen_share": unseen_by_position(substitute, validation.lengths),
    }
    with context.published() as folder:
        (folder / ANSWER_FACTS).write_text(json.dumps(about) + "\n")
        save_file(answers, folder / ANSWERS)


def read_answers(artifact: ArtifactReference) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read answers, and about them: the head's classes, the constant heads, the unseen share."""
    folder = verified(artifact, ANSWERS, ANSWER_FACTS)
    return load_file(folder / ANSWERS), json.loads((folder / ANSWER_FACTS).read_text())


# The body does not use ``heads``: it is in the step's key, and results read it from the step.
@stage("score_answers", version=2)
def score_answers(
    context: Context,
    text: Step,
    heads: ConstantHeads,
    answers: Step,
    original_answers: Step,
    task: TaskSpec,
    seeds: tuple[int, ...],
    code: CustomCode | None = None,
) -> None:
    """Score the answers of a native head, as a probe's are; the score is the same for all seeds.

    In: the answers, and those of the original model. Out: scores, and what each row adds to them.
    Where: a worker.
    """
    corpus = open_corpus(context.artifacts[text])
    original, _ = read_answers(context.artifacts[original_answers])
    answered, about = read_answers(context.artifacts[answers])
    classes = tuple(about["classes"])
    scored = score_on_task(
        task, original, answered, corpus.split("validation"), corpus.label_names, classes, code
    )
    scores = CellScores(
        scores=tuple(ScoredSeed(seed, scored.score, seconds=0.0) for seed in seeds),
        positive=positive_name(task, corpus.label_names),
        unseen_share=about["unseen_share"],
        constant_heads=tuple(tuple(head) for head in about["constant_heads"]),
        classes=classes_in_words(corpus.label_names, classes, task),
        same_answer="" if task.metric == LOSS else same_answer(answered, classes),
    )
    with context.published() as folder:
        scores.save(folder, [scored.examples] * len(seeds))


@stage("one_answer", version=1)
def one_answer(
    context: Context, text: Step, task: TaskSpec, code: CustomCode | None = None
) -> None:
    """Score always giving one answer, with which a native head is compared.

    In: the tokenised text's labels. Out: the best score of one answer, and what each validation
    row adds to it. Where: a worker.
    """
    best = best_constant_answer(open_corpus(context.artifacts[text]), task, 0, code)
    with context.published() as folder:
        save_baseline(folder, best)
