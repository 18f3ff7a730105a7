"""The batches that an in-memory model is called with, from batches or from texts: all of them, or
those that averages and head scores come of and those measured.
"""

import inspect
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from papa.errors import DataError, EncoderError, joined, shown
from papa.heads.attention_layers import attention_parts
from papa.library.encoder import Texts, is_tabular, table_of_texts
from papa.library.tasks import Task
from papa.native.batches import InMemoryTexts
from papa.native.outputs import has_many_labels
from papa.text.sources import SPLITS
from papa.text.tokens import check_vocabulary

Batch: TypeAlias = Mapping[str, Any]
Data: TypeAlias = Any
"""Batches; one ``BatchEncoding``; or with a tokenizer ``Texts``, of a table its columns ``text``
and, where it has them, ``text_pair`` and ``label``.
"""
Labels: TypeAlias = list[Any]
"""A number for each text, or a list of numbers, one for each label that it may have."""
NAMES_OF_TEXT = {"input_ids", "attention_mask", "token_type_ids", "position_ids", "labels"}
"""What a batch of text alone holds at most."""


def batches_of(
    data: Data,
    model: nn.Module,
    tokenizer: PreTrainedTokenizerBase | None = None,
    columns: Mapping[str, str | None] | None = None,
) -> list[Batch]:
    """Return the batches that a model is called with; of a table, ``columns`` says which hold
    "text", "text_pair" and "label", where they are called otherwise. Raises a DataError where
    ``data`` holds neither texts nor batches, or they do not fit the model.
    """
    if _is_batch(data):
        data = [data]
    if data is not None and not isinstance(data, str) and not is_tabular(data):
        data = list(data)
        columns = None
        if data and all(map(_is_batch, data)):
            for number, batch in enumerate(data):
                _check_padding(number, batch, model.config)
                _check_token_ids(number, batch, model)
            return data
    pretrained = cast("PreTrainedModel", model)
    texts, labels = _texts_and_labels(data, pretrained, columns or {})
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        raise DataError(
            f"data holds texts, but tokenizer is {shown(tokenizer)}: give the model's, such as "
            "AutoTokenizer.from_pretrained(name), or batches, such as "
            '[tokenizer(texts, padding=True, return_tensors="pt")]'
        )
    name = pretrained.name_or_path or type(model).__name__
    vocabulary = cast("Tensor", pretrained.get_input_embeddings().weight)
    check_vocabulary(tokenizer, len(vocabulary), name)
    return _tokenised(texts, labels, pretrained, tokenizer)


def splits_of(
    data: Data, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None, task: Task
) -> tuple[list[Batch], list[Batch]]:
    """Return training and validation batches: as a user divided them, or every other text, the
    longest first. Raises a DataError for one text, and where ``data`` does not fit the model.
    """
    columns = columns_of(task)
    if isinstance(data, Mapping) and {*SPLITS} <= {*data}:
        train = batches_of(data["train"], model, tokenizer, columns)
        return train, batches_of(data["validation"], model, tokenizer, columns)
    texts = InMemoryTexts.from_batches(batches_of(data, model, tokenizer, columns), model)
    if len(texts) < 2:
        raise DataError("data holds one text: give two or more, or {'train': …, 'validation': …}")
    longest_first = np.argsort(-texts.lengths, kind="stable")
    of_train = {*longest_first[::2].tolist()}
    return (
        [text for row, text in enumerate(texts.texts) if row in of_train],
        [text for row, text in enumerate(texts.texts) if row not in of_train],
    )


def columns_of(task: Task) -> dict[str, str | None]:
    """Return the columns that a task names, as ``batches_of`` takes them."""
    columns = {"text": task.text, "label": task.label}
    return columns if task.text_pair is None else {**columns, "text_pair": task.text_pair}


def check_answering(model: nn.Module) -> PreTrainedModel:
    """Return the model, whose heads can be replaced. Raises an EncoderError where they cannot, or
    in train mode.
    """
    attention_parts(model)
    if any(module.training for module in model.modules()):
        raise EncoderError(
            "the model is in train mode, where dropout changes its answers: call model.eval() first"
        )
    return cast("PreTrainedModel", model)


def _check_padding(number: int, batch: Batch, config: object) -> None:
    """Raise an error if texts of a batch are padded without a mask, as padding would count as
    tokens.
    """
    ids = batch.get("input_ids")
    pad = getattr(config, "pad_token_id", None)
    has_mask = batch.get("attention_mask") is not None
    if pad is None or has_mask or not isinstance(ids, Tensor) or ids.dim() != 2:
        return
    meanings = ("bos_token_id", "eos_token_id", "sep_token_id", "decoder_start_token_id")
    # Where padding is also the token of an end, one of it may end a text.
    length = 2 if pad in [getattr(config, name, None) for name in meanings] else 1
    if ids.shape[1] <= length:
        return
    is_padding = torch.eq(ids, pad)
    padded = is_padding[:, -length:].all(1) | is_padding[:, :length].all(1)
    if padded.any():
        raise DataError(
            f"batch {number} of data has padding tokens ({pad}) at the start or end of a "
            f"text, such as text {int(padded.nonzero()[0])}, and no attention_mask: give the "
            "tokenizer's attention_mask, or ones if these are ordinary tokens"
        )


def _check_token_ids(number: int, batch: Batch, model: nn.Module) -> None:
    """Raise an error if a batch is one text, or holds token ids that the model has no embeddings
    for.
    """
    ids = batch.get("input_ids")
    if isinstance(ids, Tensor) and ids.dim() == 1:
        raise DataError(
            f"batch {number} of data has input_ids of shape {list(ids.shape)}, expected [texts, "
            "tokens]: give batches, such as torch.utils.data.DataLoader(data, batch_size=8)"
        )
    # Beside an image or sound, ids without an embedding may mark where it goes.
    if not isinstance(ids, Tensor) or not ids.numel() or not {*batch} <= NAMES_OF_TEXT:
        return
    try:
        embeddings = cast("PreTrainedModel", model).get_input_embeddings()
    except NotImplementedError:
        # As CANINE, which hashes characters.
        return
    if not isinstance(embeddings, nn.Embedding):
        return
    lowest, highest = (int(bound) for bound in ids.aminmax())
    if lowest < 0 or highest >= embeddings.num_embeddings:
        raise DataError(
            f"batch {number} of data has token ids from {lowest} to {highest}, but the model has "
            f"embeddings for 0 to {embeddings.num_embeddings - 1}: use the tokenizer that belongs "
            "to the model"
        )


def _is_batch(data: object) -> bool:
    return isinstance(data, Mapping) and any(isinstance(value, Tensor) for value in data.values())


def _texts_and_labels(
    data: Texts, model: PreTrainedModel, columns: Mapping[str, str | None]
) -> tuple[list[Any], Labels | None]:
    """Return texts, and the labels of a table as the numbers of the model's classes.

    Labels are None for a model that takes none, and for a language model, whose labels are tokens.

    Args:
        data: The texts.
        model: The model that answers.
        columns: The columns of "text", "text_pair" and "label"; None where there is none. What is
            not named is the column of that name, if the table has it.
    """
    table = table_of_texts(data)

    def column_of(name: str) -> str | None:
        """Return the column that holds this; None if the table has none."""
        column = columns.get(name, name)
        is_there = column != name or name in table.rows.column_names
        return column if column and is_there else None

    text_column = columns.get("text") or "text"
    if columns and text_column not in table.rows.column_names:
        example = f"papa.Task(text={table.rows.column_names[0]!r})"
        raise DataError(f"{table.missing_column_message(text_column)}, such as task={example}")
    texts = table.texts(text_column).to_pylist()
    second_column = column_of("text_pair")
    if second_column:
        texts = list(zip(texts, table.texts(second_column).to_pylist(), strict=True))
    label_column = column_of("label")
    if not label_column:
        return texts, None
    labels = table.column(label_column).to_pylist()
    takes_labels = "labels" in inspect.signature(model.forward).parameters
    if not takes_labels or model.get_output_embeddings() is not None:
        return texts, None
    names = table.class_names.get(label_column)
    return texts, _labels_of_head(table.origin, labels, names, model)


def _labels_of_head(
    origin: str, labels: Labels, names: Sequence[str] | None, model: PreTrainedModel
) -> Labels:
    """Return labels, numbers or names of classes, as a model's head takes them.

    Args:
        origin: What the table is called in messages.
        labels: Of each text.
        names: The classes of a ``ClassLabel`` column.
        model: The model that answers.
    """
    config: Any = model.config
    known: Mapping[str, int] = config.label2id or {}
    if names and not isinstance(labels[0], list):
        labels = _named_classes(origin, labels, names, known)
    if isinstance(labels[0], str):
        unknown = sorted({label for label in labels if label not in known})
        if unknown:
            raise DataError(
                f"the labels {joined(unknown)} are not in the model's label2id: give "
                f"{joined(known)}, or their numbers"
            )
        labels = [known[label] for label in labels]
    classes = config.num_labels
    if has_many_labels(config):
        return _label_vectors(origin, labels, classes)
    if classes == 1 or config.problem_type == "regression":
        return labels
    wrong = next((label for label in labels if label not in (-100, *range(classes))), None)
    if wrong is not None:
        raise DataError(
            f"label {wrong!r:.40} is not a class of the model's head: give 0 to "
            f"{classes - 1}, or {joined(known)} (its label2id)"
        )
    return [int(label) for label in labels]


def _named_classes(
    origin: str, labels: Sequence[int], names: Sequence[str], known: Mapping[str, int]
) -> list[str] | list[int]:
    """Return the labels of a ``ClassLabel`` column by name, as a head may number its classes in
    another order.
    """
    wrong = [row for row, label in enumerate(labels) if label not in range(len(names))]
    if wrong:
        raise DataError(
            f"{origin}: row {wrong[0] + 1} has the label {labels[wrong[0]]}, expected 0 to "
            f"{len(names) - 1} (its ClassLabel); so have {len(wrong)} of {len(labels)} rows: "
            "remove rows without a class, and correct the others"
        )
    if "LABEL_0" not in known:
        return [names[label] for label in labels]
    if all(map(str.isdecimal, names)):
        return [int(names[label]) for label in labels]
    raise DataError(
        f"{origin} has the classes {joined(names)}, but the model's label2id has "
        f"{joined(known)}: set model.config.label2id to the number of each class, or give "
        "labels as numbers in the head's order"
    )


def _label_vectors(origin: str, labels: Labels, classes: int) -> list[list[float]]:
    """Return, for each text, a vector that says which labels it has."""
    for row, vector in enumerate(labels, 1):
        is_whole = isinstance(vector, Sequence) and len(vector) == classes
        if not is_whole or any(number not in (0, 1) for number in vector):
            raise DataError(
                f"{origin}: row {row} has the label {vector!r:.40}, but the model has "
                f"{classes} labels per text: give a list of {classes} numbers, 0 or 1, for "
                "each text"
            )
    return [[float(number) for number in vector] for vector in labels]


def _tokenised(
    texts: Sequence[str] | Sequence[tuple[str, str]],
    labels: Labels | None,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
) -> list[Batch]:
    """Tokenise texts in their order, each as a batch of its own, so that none is padded. They are
    truncated at the positions of the model or where its tokenizer says, with a warning.
    """
    positions = positions_of(model)
    most = min(positions or tokenizer.model_max_length, tokenizer.model_max_length)
    sides = [*map(list, zip(*texts, strict=True))] if isinstance(texts[0], tuple) else [texts]
    tokens = tokenizer(*sides, return_attention_mask=True, verbose=False)
    truncated = sum(len(ids) > most for ids in tokens["input_ids"])
    if truncated:
        limit = "positions that the model has" if most == positions else "tokenizer's limit"
        warnings.warn(
            f"{truncated} of {len(texts)} texts are truncated to {most} tokens, the {limit}",
            stacklevel=2,
        )
        tokens = tokenizer(*sides, return_attention_mask=True, truncation=True, max_length=most)
    batches: list[Batch] = []
    for number, ids in enumerate(tokens["input_ids"]):
        if not ids:
            raise DataError(f"text {number} has no token: remove it")
        batch = {name: torch.tensor([rows[number]]) for name, rows in tokens.items()}
        if labels is not None:
            batch["labels"] = torch.tensor([labels[number]])
        batches.append({name: tensor.to(model.device) for name, tensor in batch.items()})
    return batches


def positions_of(model: nn.Module) -> int | None:
    """Return how many tokens a text may have; None where the model does not say."""
    for name, module in model.named_modules():
        table = name.endswith("position_embeddings") and isinstance(module, nn.Embedding)
        # Tokens count from after the position of padding, as in RoBERTa.
        if table and module.padding_idx is not None:
            return int(module.num_embeddings - module.padding_idx - 1)
    config = cast("PreTrainedModel", model).config
    return getattr(config.get_text_config(), "max_position_embeddings", None)
