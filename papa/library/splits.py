"""Texts of an in-memory model: those that averages and head scores come of, and those measured."""

from collections.abc import Mapping

import numpy as np
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from papa.errors import DataError
from papa.library.batches import Batch, Data, batches_of
from papa.library.tasks import Task
from papa.native.batches import InMemoryTexts


def splits_of(
    data: Data, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None, task: Task
) -> tuple[list[Batch], list[Batch]]:
    """Return training and validation batches: as a user divided them, or every other text, the
    longest first. Raises a DataError for one text, and where ``data`` does not fit the model.
    """
    columns = {"text": task.text, "label": task.label}
    if task.text_pair is not None:
        columns["text_pair"] = task.text_pair
    if isinstance(data, Mapping) and {"train", "validation"} <= {*data}:
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
