"""Labelled data as a task of a study: resolved by the same rules, tokenised into a corpus of its
own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, TypeAlias

import pyarrow as pa
import pyarrow.parquet

from papa.corpora.rows import rows_of
from papa.corpora.sources import SPLITS
from papa.corpora.table import SourceTable
from papa.errors import DataError, SpecError, nearest_first
from papa.library.encoder import TextEncoder
from papa.library.inputs import Table, is_tabular, table_of
from papa.probes.own_model import check_own
from papa.probes.own_probe import check_probe
from papa.scores.own import OwnCode, OwnMetric, OwnScore
from papa.spec import NamedMetric, TaskKind
from papa.spec.file import registry, resolve_study
from papa.spec.task import OWN_RATE, UNLABELLED_METRICS
from papa.study.inputs import StudyInputs, inputs_with

LabelledData: TypeAlias = str | Mapping[str, Table]
"""A task's name (``papa tasks``), or tables under ``train`` and ``validation``, such as a
``datasets.DatasetDict``.
"""


@dataclass(frozen=True)
class Task:
    """What is predicted from which columns of one's own data, and how the probe is trained (paper,
    Section 3.3).

    Attributes:
        text, text_pair: the columns with texts, and with second ones where inputs are pairs.
        words: the column with lists of words that have a label each, in place of ``text``.
        label: the column with labels: numbers or names of classes, numbers for ``spearman``, for
            ``words`` lists. None restores masked words, and of a decoder asks for the next: metric
            ``negative_log_perplexity``.
        metric: ``accuracy``, ``matthews``, ``f1`` or ``spearman``; for ``words`` ``entity_f1``,
            ``token_f1`` or ``accuracy``; ``cosine_spearman`` where ``label`` is how alike ``text``
            and ``text_pair`` are. Or a function of the true and the predicted classes, as
            scikit-learn's are.
        labels: names of the classes 0, 1, …; None takes them from the data.
        positive: the name of the class that ``f1`` is of.
        learning_rate, batch_size, epochs: of the probe (paper, App. B has those of its tasks), and
            of λ. A rate of None takes 1e-4, or 0.02 with ``head="own"``.
        name: in tables and figures.
        head: a probe, or the model's own head, as it is in its files. Without labels it is
            measured against itself: metric ``agreement``, or of a sentence encoder ``nearest_10``,
            ``nearest_1``, ``similarities`` or ``cosine``.
        probe: one of your own: an estimator of scikit-learn, or a function of (inputs, classes)
            that gives a module of PyTorch, such as ``torch.nn.Linear``. It sees the means over a
            text's tokens of all layers side by side, or a labelled word's layers.
        score: with ``head="own"``, in place of a metric, as for ``fidelity``; the batch holds
            ``labels``.
    """

    text: str = "text"
    text_pair: str | None = None
    words: str | None = None
    label: str | None = "label"
    metric: NamedMetric | OwnMetric = "accuracy"
    labels: tuple[str, ...] | None = None
    positive: str | None = None
    learning_rate: float | None = None
    batch_size: int = 16
    epochs: int = 4
    name: str = "data"
    head: Literal["probe", "own"] = "probe"
    probe: Any = None
    score: OwnScore | None = None

    @property
    def rate(self) -> float:
        """The learning rate, where none is given that of the head."""
        if self.learning_rate is not None:
            return self.learning_rate
        return OWN_RATE if self.head == "own" else 1e-4

    def kind(self, causal: bool = False) -> TaskKind:
        """The kind that a study's file gives such a task, for a decoder where it is ``causal``."""
        if causal:
            return "causal"
        if self.words is not None:
            return "words"
        if self.metric == "cosine_spearman":
            return "similarity"
        if self.label is None and self.score is None and self.metric not in UNLABELLED_METRICS:
            return "mlm"
        return "pair" if self.text_pair is not None else "text"

    def columns(self) -> dict[str, str]:
        """The columns that are read, by the attribute that names them."""
        read = ("words", "label") if self.words is not None else ("text", "text_pair", "label")
        return {name: getattr(self, name) for name in read if getattr(self, name) is not None}

    @property
    def code(self) -> OwnCode | None:
        """The user's own, where it fits together."""
        metric = self.metric if callable(self.metric) else None
        if self.score is not None and (self.head != "own" or metric or self.metric in _ASKED):
            raise SpecError(
                'score: it is of what a model puts out: set head="own", leave metric out'
            )
        if metric and self.label is None:
            raise SpecError("metric: a function is called with true classes: name their label")
        if self.probe is not None:
            if self.head == "own" or self.label is None or self.metric == "spearman":
                raise SpecError("probe: it predicts classes: name their label, and leave head out")
            check_probe(self.probe)
        given = OwnCode(metric, self.probe, self.score)
        return None if given == OwnCode() else given

    def named_metric(self, causal: bool) -> NamedMetric:
        """The metric, or, of code of the user's own, one that reads the same labels."""
        if self.score is None and not callable(self.metric):
            return self.metric
        if causal:
            return "negative_log_perplexity"
        if self.label is None:
            return "agreement"
        return "token_f1" if self.words is not None else "accuracy"


_ASKED = (*UNLABELLED_METRICS, "cosine_spearman")


@contextmanager
def study_inputs(
    encoder: TextEncoder,
    dataset: LabelledData,
    task: Task | None,
    *,
    sampled: Mapping[str, int | None],
    **parts: Any,
) -> Iterator[StudyInputs]:
    """Inside the block, a study of this encoder on this data, of which ``parts`` are the rest;
    one's own rows lie in temporary files meanwhile. ``sampled`` are ``train_rows`` and
    ``validation_rows``, None for all.
    """
    causal, code = encoder.reference.causal, task.code if task else None
    if causal and (task is None or task.label is not None or task.head != "own"):
        raise SpecError(
            f"{encoder.reference.display} is a decoder, asked for the next word by its own head: "
            'give papa.Task(label=None, metric="negative_log_perplexity", head="own")'
        )
    with TemporaryDirectory(prefix="papa-rows-") as temporary:
        if isinstance(dataset, str):
            if dataset not in (known := registry()):
                raise SpecError(
                    f"there is no task '{dataset}' (known: {nearest_first(dataset, known)})"
                )
            if task is not None:
                raise SpecError(f"the task '{dataset}' is described already: leave task out")
            tables, described = {}, {"name": dataset}
        else:
            tables = _tables(dataset, task or Task())
            described = _described(task or Task(), tables, Path(temporary), causal)
        document = {
            "name": "library",
            "encoders": [{"name": encoder.reference.name}],
            "tasks": [{**described, "slots": encoder.slots, **sampled}],
            "precision": encoder.reference.precision,
            **parts,
        }
        study = resolve_study(document, folder=Path.cwd(), origin="papa")
        if tables:
            # What is wrong with them is said of them, not of files that nobody knows.
            rows_of(study.tasks[0], tables["train"], tables["validation"])
        if code and (code.metric or code.score):
            own = study.tasks[0].model_copy(update={"metric": "own"})
            study = study.model_copy(update={"tasks": (own,)})
        inputs = inputs_with(study, encoder.reference)
        if inputs.study.tasks[0].head == "own":
            check_own(inputs.study.tasks[0], encoder.reference, None, None)
        yield replace(inputs, code={inputs.study.tasks[0]: code}) if code else inputs


def as_list(values: object) -> object:
    """A list as a study has it; what is none stays as it is, and is refused there."""
    return list(values) if isinstance(values, Iterable) and not isinstance(values, str) else values


def _tables(dataset: Mapping[str, Table], task: Task) -> dict[str, SourceTable]:
    for split in SPLITS:
        if not isinstance(dataset, Mapping) or not is_tabular(dataset.get(split)):
            found = list(dataset) if isinstance(dataset, Mapping) else type(dataset).__name__
            raise DataError(
                f"expected {{'train': …, 'validation': …}}, each a data set, a data frame or a "
                f"mapping of columns, found {found}"
            )
    return {
        split: table_of(dataset[split], f"the {split} split", task.columns()) for split in SPLITS
    }


def _described(
    task: Task, tables: Mapping[str, SourceTable], folder: Path, causal: bool
) -> dict[str, Any]:
    """The task as a study's file has it; its rows lie in Parquet files, as a source's would."""
    source = {"kind": "files"}
    for split, table in tables.items():
        source[split] = str(folder / f"{split}.parquet")
        columns = list(dict.fromkeys(task.columns().values()))
        pa.parquet.write_table(table.rows.select(columns), source[split])
    probe = {"learning_rate": task.rate, "batch_size": task.batch_size, "epochs": task.epochs}
    return {
        # Nothing of a task in the registry that happens to have the same name.
        "base": None,
        **{name: getattr(task, name) for name in ("name", "labels", "positive", "head")},
        "metric": task.named_metric(causal),
        "kind": task.kind(causal),
        "columns": task.columns(),
        "probe": probe,
        "source": source,
    }
