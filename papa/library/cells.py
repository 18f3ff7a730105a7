"""The cells of an in-memory model: its answers with heads constant, scored, as rows of results."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas

from papa.heads.substitutes import Substitute
from papa.native.in_memory import labels_of_texts
from papa.native.outputs import class_names, has_many_labels
from papa.native.passes import NativeHead
from papa.progress import bar
from papa.scores.answers import AnswerArrays, same_answer, score_by_metric
from papa.scores.constant_answers import commonest_answer
from papa.scores.metrics import influence
from papa.spec import Metric
from papa.spec.orders import Cell, Head, constant_heads, heads_of_units
from papa.spec.task import LOSS


@dataclass
class Cells:
    """The results of cells on the measured texts; each set of constant units is scored once for a
    draw of a substitute.

    Attributes:
        native: The native head, on the measured texts.
        metric: What its answers are scored by.
        substitutes: By the name that tables call them, and by probe seed: one for all seeds, unless
            it is drawn.
        original: The answers of the original model.
    """

    native: NativeHead
    metric: Metric
    substitutes: Mapping[str, Mapping[int, Substitute]]
    original: AnswerArrays
    _results: dict[tuple[int, frozenset[Head]], dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Of a head that answers each label by itself no class is the answer to a text.
        is_multilabel = has_many_labels(self.native.model.config)
        self._classes = () if is_multilabel else class_names(self.native.model)
        self._labels = labels_of_texts(self.native)
        self._baseline = _one_answer_columns(self.native, self.metric)

    def result(self, name: str, seed: int, units: Sequence[Head]) -> dict[str, Any]:
        """Return what a cell whose units, by the index of their layer, are constant scores for a
        probe seed, as columns of a study's results.
        """
        substitute = self.substitutes[name][seed]
        key = (id(substitute) if units else 0, frozenset(units))
        if key not in self._results:
            start = time.monotonic()
            answers = self.original
            if units:
                answers = self.native.all_answers(substitute, units)
            scored = score_by_metric(self.metric, self.original, answers, self._labels)
            self._results[key] = {
                "score": scored.score,
                "seconds": time.monotonic() - start,
                "unseen_share": math.nan,
                "heads": len(self.native.layers.numbers) * self.native.heads_per_layer,
                "positive": "",
                "classes": "",
                "same_answer": "" if self.metric == LOSS else same_answer(answers, self._classes),
                **self._baseline,
                "word_embeddings": math.nan,
                "influence": influence(self.metric, scored.examples).astype(np.float32),
                "word_embeddings_influence": np.zeros(0, np.float32),
            }
        return self._results[key]


def score_cells(
    cells: Cells,
    units_in_order: Mapping[tuple[str, int], Sequence[Head]],
    keep: Sequence[float],
    task: str,
    progress: bool,
) -> tuple[pandas.DataFrame, dict[Cell, tuple[Head, ...] | None]]:
    """Return a row for each cell and seed, and the constant heads of each cell, None where seeds
    have others.

    Args:
        cells: What scores them.
        units_in_order: All units, the first to become constant first, by order and seed.
        keep: Shares of units that stay input-dependent.
        task: The task's name.
        progress: Whether to show a progress bar.
    """
    native = cells.native
    name_or_path = str(getattr(native.model, "name_or_path", ""))
    label = name_or_path.rstrip("/").rpartition("/")[2] or type(native.model).__name__
    rows: list[dict[str, Any]] = []
    heads_of_cell: dict[Cell, set[tuple[Head, ...]]] = {}
    combinations = [
        (name, *key, share)
        for name in cells.substitutes
        for key in units_in_order
        for share in keep
    ]
    with bar("measuring", progress, "cell") as report:
        for done, (name, order, seed, share) in enumerate(combinations, 1):
            cell = Cell(label, task, name, order, float(share))
            units = constant_heads(units_in_order[order, seed], share)
            result = cells.result(name, seed, units)
            heads = heads_of_units(units, native.heads_per_unit)
            numbered_heads = sorted((native.layers.numbers[layer], head) for layer, head in heads)
            heads_of_cell.setdefault(Cell.from_row(vars(cell)), set()).add(tuple(numbered_heads))
            counted = {"constant_heads": len(heads), "seed": seed, "metric": cells.metric}
            rows.append({**vars(cell), **counted, **result})
            report(done, len(combinations))
    constant = {
        cell: next(iter(lists)) if len(lists) == 1 else None
        for cell, lists in heads_of_cell.items()
    }
    return pandas.DataFrame(rows), constant


def _one_answer_columns(native: NativeHead, metric: Metric) -> dict[str, Any]:
    """Return what the best single answer scores on labels of texts, as columns of results; NaN and
    empty where no class can be the best answer.
    """
    columns = {
        "always_one_answer": math.nan,
        "one_answer": "",
        "one_answer_influence": np.zeros(0, np.float32),
    }
    labels = labels_of_texts(native)
    is_by_class = metric in ("accuracy", LOSS) and not has_many_labels(native.model.config)
    if not is_by_class or labels is None or len(labels) != len(native.texts):
        return columns
    constant = commonest_answer(metric, labels, class_names(native.model))
    return {
        "always_one_answer": constant.score,
        "one_answer": constant.answer or "",
        "one_answer_influence": influence(metric, constant.examples).astype(np.float32),
    }
