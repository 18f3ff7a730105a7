"""The native head of a study's model: opened for a split, and checked against a task."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from transformers import PreTrainedModel

from papa.errors import EncoderError
from papa.heads.attention_layers import attention_layers
from papa.models.native import class_of_native_head
from papa.models.reference import EncoderReference, load_tokenizer
from papa.models.weights import load_model
from papa.native.batches import SplitTexts
from papa.native.outputs import class_names, has_many_labels
from papa.native.passes import NativeHead
from papa.scores.answers import class_ids, classes_in_words
from papa.scores.custom import CustomScore
from papa.scores.embeddings import check_sentences
from papa.spec import TaskSpec
from papa.text.corpus import TokenisedSplit
from papa.text.tokens import special_tokens_of


def open_native(
    model: PreTrainedModel,
    task: TaskSpec,
    reference: EncoderReference,
    split: TokenisedSplit,
    label_names: Sequence[str] | None = None,
    score: CustomScore | None = None,
    batch_tokens: int | None = None,
) -> NativeHead:
    """Return the native head of a loaded model in eval mode, for the texts of a split; it is
    trained no more. ``label_names`` are the task's classes, where its labels are read;
    ``batch_tokens`` as for ``SplitTexts``.
    """
    model.requires_grad_(False)
    tokens = special_tokens_of(load_tokenizer(reference), task.kind)
    if getattr(model.config, "type_vocab_size", 2) < 2:
        tokens = replace(tokens, segments=(0, 0, 0))
    classes = None
    if label_names and task.columns.label is not None:
        classes = torch.from_numpy(class_ids(label_names, class_names(model), task)).to(
            model.device
        )
    texts = SplitTexts(split, tokens, model.device, classes, batch_tokens)
    return NativeHead(model, texts, score=score)


def check_native(
    task: TaskSpec, reference: EncoderReference, names: Sequence[str] | None, rows: int | None
) -> str:
    """Return which of a model's native classes are the task's, in words. Raises an error if the
    native head cannot serve the task.
    """
    if not reference.folder:
        raise EncoderError(
            f"the encoder {reference.name} is held in memory, without its native head: give "
            "papa.measure the model itself, with tokenizer="
        )
    head = class_of_native_head(task, reference)
    model = load_model(reference, head=head, with_weights=False).eval()
    attention_layers(model)  # Refused before anything runs.
    in_words = classes_in_words(names, class_names(model), task)
    if rows is not None:
        check_sentences(task, rows)
    classes = getattr(model.config, "num_labels", 2)
    of_texts = task.kind in ("text", "pair") and not task.of_embeddings
    if of_texts and has_many_labels(model.config):
        if task.columns.label is not None and task.metric != "custom":
            raise EncoderError(
                f"the head of '{reference.name}' decides on each of {classes} labels by itself "
                "(problem_type: multi_label_classification), and the task has one class for each "
                "text: leave out columns.label and set metric: agreement"
            )
    elif of_texts and classes > 1 and model.config.problem_type == "regression":
        raise EncoderError(
            f"the head of '{reference.name}' gives {classes} numbers (problem_type: regression), "
            "no classes: measure it in your own loop, with papa.ablated"
        )
    elif of_texts and (classes == 1) != task.regression:
        gives = "one number" if classes == 1 else f"{classes} classes"
        raise EncoderError(
            f"the head of '{reference.name}' gives {gives}, and the metric is {task.metric}: set "
            f"metric: {'spearman' if classes == 1 else 'accuracy or agreement'}"
        )
    return in_words
