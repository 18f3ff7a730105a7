"""Labelled data as a task of a study, resolved by the same rules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import pyarrow
import pyarrow.parquet

from papa.errors import DataError, SpecError, joined, shown
from papa.library.encoder import Encoder, is_tabular, table_of
from papa.native.loading import check_native
from papa.probes.estimators import Estimator, check_probe
from papa.scores.custom import CustomCode, CustomMetric, CustomScore, custom_name
from papa.spec import NamedMetric, TaskKind
from papa.spec.file import resolve_study
from papa.spec.task import NATIVE_TRAINING, UNLABELLED_METRICS
from papa.tasks.inputs import StudyInputs, inputs_with
from papa.text.rows import prepare_rows
from papa.text.sources import SPLITS
from papa.text.table import SourceTable


@dataclass(frozen=True)
class Task:
    """What is predicted from which columns of a data set, and how the probe is trained (paper,
    Section 3.3).

    Attributes:
        text: The column with texts.
        text_pair: The column with second texts, if inputs are pairs.
        words: The column with lists of words that have a label each, in place of ``text``.
        label: The column with labels: numbers, names of classes, or for ``words`` lists of them.
            None restores masked words, and of a decoder predicts the next.
        metric: A metric by its name (docs/how-to/own-data.md), or a function of the true and the
            predicted classes, as scikit-learn's are. None takes "accuracy"; of an in-memory model
            what ``papa.measure`` takes as ``score``.
        labels: Names of the classes 0, 1, …; None takes the data's.
        positive: For ``metric="f1"``, the name of the positive class; None takes class 1.
        learning_rate: Rate of the probe and of λ (paper, App. B); None takes 1e-4, or 0.05 with
            ``head="native"``.
        batch_size: Rows in a step of training; None takes 16, or 4 with ``head="native"``.
        epochs: Passes over the training rows, of the probe and of λ; None takes 4, or 3 with
            ``head="native"``.
        name: What tables call the task.
        head: What answers: "probe", trained on the frozen encoder, or "native", the model's own
            task head.
        probe: A custom probe: an estimator of scikit-learn; None trains PAPA's.
        score: With ``head="native"`` and in place of a metric, a function as for ``fidelity``; its
            batch holds ``labels``.
    """

    text: str = "text"
    text_pair: str | None = None
    words: str | None = None
    label: str | None = "label"
    metric: NamedMetric | CustomMetric | None = None
    labels: tuple[str, ...] | None = None
    positive: str | None = None
    learning_rate: float | None = None
    batch_size: int | None = None
    epochs: int | None = None
    name: str = "data"
    head: Literal["probe", "native"] = "probe"
    probe: Estimator | None = None
    score: CustomScore | None = None


@contextmanager
def study_inputs(
    encoder: Encoder,
    dataset: object,
    task: Task | None,
    *,
    sampled: Mapping[str, int | None],
    settings: Mapping[str, object],
) -> Iterator[StudyInputs]:
    """Yield a study of this encoder on a task by its name, or on tables under "train" and
    "validation"; rows in memory lie in temporary Parquet files while the block runs. ``sampled``
    are numbers of rows, keys of the study's task, and ``settings`` the study's other keys.
    """
    if task is not None:
        check_task(task)
    causal = encoder.reference.causal
    code = _code(task) if task else None
    with TemporaryDirectory(prefix="papa-rows-") as temporary:
        tables: dict[str, SourceTable] = {}
        if not isinstance(dataset, str):
            tables = _tables_of(dataset)
            described = _described(task or _usual_task(tables.values(), causal), causal)
            columns = list(dict.fromkeys(described["columns"].values()))
            for name, table in tables.items():
                for column in columns:
                    table.column(column)
                described["source"][name] = file = str(Path(temporary) / f"{name}.parquet")
                pyarrow.parquet.write_table(table.rows.select(columns), file)
        elif task is not None:
            raise SpecError(
                f"'{dataset}' is a known task, which describes its own columns: leave out task"
            )
        else:
            described = {"name": dataset}
        document = {
            "name": "library",
            "encoders": [{"name": encoder.reference.name}],
            "tasks": [{**described, "slots": encoder.slots, **sampled}],
            "precision": encoder.reference.precision,
            **settings,
        }
        study = resolve_study(document, folder=Path.cwd(), origin="papa")
        if tables:
            # What is wrong with them is said of them, not of files that nobody knows.
            prepare_rows(study.tasks[0], tables["train"], tables["validation"])
        if code and (code.metric or code.score):
            custom = study.tasks[0].model_copy(update={"metric": "custom"})
            study = study.model_copy(update={"tasks": (custom,)})
        inputs = inputs_with(study, encoder.reference)
        (resolved,) = inputs.study.tasks
        if resolved.head == "native":
            check_native(resolved, encoder.reference, None, None)
        if code:
            if resolved.metric == "custom":
                metric = custom_name(code.metric or code.score)
                resolved = resolved.model_copy(update={"metric": metric})
            study = inputs.study.model_copy(update={"tasks": (resolved,)})
            inputs = replace(inputs, study=study, code={resolved: code})
        yield inputs


def check_task(task: object) -> None:
    """Raise a SpecError unless ``task`` is a task."""
    if not isinstance(task, Task):
        raise SpecError(
            f"task is {shown(task)}, expected papa.Task(…): give a known task's name as data, and "
            "other arguments by name"
        )


def task_in_memory(task: Task | None, names: Sequence[str]) -> Task:
    """Return the task that an in-memory model is called on. Raises a SpecError unless only those of
    its arguments are set.
    """
    task = Task() if task is None else task
    check_task(task)
    changed = {field.name for field in fields(Task) if getattr(task, field.name) != field.default}
    if not changed <= {*names}:
        others = joined(sorted(changed - {*names}))
        raise SpecError(f"task: an in-memory model takes {joined(names)}: leave out {others}")
    return task


def _tables_of(dataset: object) -> dict[str, SourceTable]:
    """Return the table of each split."""
    tables: dict[str, SourceTable] = {}
    for split in SPLITS:
        if not isinstance(dataset, Mapping) or not is_tabular(dataset.get(split)):
            found = [*dataset] if isinstance(dataset, Mapping) else f"one {type(dataset).__name__}"
            raise DataError(
                f"data is {shown(found)}, expected tables by split: give {{'train': …, "
                "'validation': …}, each a data set, a data frame or a mapping of columns"
            )
        tables[split] = table_of(dataset[split], f"the {split} split")
    return tables


def as_list(values: object) -> object:
    """Return a list as a study has it; what is no list is returned unchanged, and refused there."""
    return list(values) if isinstance(values, Iterable) and not isinstance(values, str) else values


def checked_list(name: str, values: object) -> list[Any]:
    """Return the values of an argument as a list. Raises a SpecError where they are none."""
    listed = as_list(values)
    if not isinstance(listed, list) or not listed:
        raise SpecError(f"{name} is {values!r}, expected a list of one or more")
    return listed


def _code(task: Task) -> CustomCode | None:
    """Return the task's custom code, where it fits together; None where it has none."""
    metric = task.metric if callable(task.metric) else None
    has_metric = metric or task.metric in (*UNLABELLED_METRICS, "cosine_spearman")
    if task.score is not None and (task.head != "native" or has_metric):
        raise SpecError(
            "score: a custom score is computed from the native head's output: set "
            'head="native" and leave out metric'
        )
    if metric and task.label is None:
        raise SpecError("metric: a custom metric compares true and predicted classes: set label")
    if task.probe is not None:
        if task.head == "native" or task.label is None or task.metric == "spearman":
            raise SpecError("probe: a custom probe predicts classes: set label, and leave out head")
        check_probe(task.probe)
    code = CustomCode(metric, task.probe, task.score)
    return None if code == CustomCode() else code


def _usual_task(tables: Iterable[SourceTable], causal: bool) -> Task:
    """Return what the columns ``text``, ``label`` and, where there is one, ``text_pair`` say; of a
    decoder, which predicts the next word, ``text`` alone.
    """
    if causal:
        return Task(label=None, metric="negative_log_perplexity", head="native")
    is_pair = all("text_pair" in table.rows.column_names for table in tables)
    return Task(text_pair="text_pair" if is_pair else None)


def _described(task: Task, causal: bool) -> dict[str, Any]:
    """Return a task as a study's file has it; for custom code stands a metric that reads the same
    labels.
    """
    kind: TaskKind = "pair" if task.text_pair is not None else "text"
    metric = task.metric or "accuracy"
    if task.score is not None or callable(metric):
        metric = "agreement" if task.label is None else "token_f1" if task.words else "accuracy"
    elif task.label is None and metric not in UNLABELLED_METRICS:
        kind = "mlm"
    if causal:
        kind = "causal"
        metric = "negative_log_perplexity" if task.score is not None else metric
    elif task.words is not None:
        kind = "words"
    elif task.metric == "cosine_spearman":
        kind = "similarity"
    read = ("words", "label") if task.words is not None else ("text", "text_pair", "label")
    usual = {"learning_rate": 1e-4, "batch_size": 16, "epochs": 4}
    if task.head == "native":
        usual = NATIVE_TRAINING
    requested = {name: getattr(task, name) for name in usual}
    training = usual | {name: value for name, value in requested.items() if value is not None}
    columns = {name: getattr(task, name) for name in read}
    return {
        # Nothing of a task in the registry that happens to have the same name.
        "base": None,
        **{name: getattr(task, name) for name in ("name", "labels", "positive", "head")},
        "metric": metric,
        "kind": kind,
        "columns": {name: column for name, column in columns.items() if column is not None},
        "probe": training,
        "source": {"kind": "files"},
    }
