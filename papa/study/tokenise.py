"""Stage ``tokenise``: a task's text laid out in S slots, as Arrow shards."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from papa.corpora import TOKENISE_VERSION
from papa.encoders.reference import EncoderReference
from papa.spec import LayoutSpec, TaskSpec
from papa.spec.task import UNLABELLED_METRICS, is_own
from papa.storage.artifacts import ArtifactReference
from papa.study.step import Context, Step, WorkerStep, identity

if TYPE_CHECKING:
    from papa.corpora.corpus import TokenisedCorpus


@dataclass(frozen=True, eq=False)
class Tokenise(WorkerStep):
    """Tokenise both splits of a task."""

    stage: ClassVar[str] = "tokenise"
    version: ClassVar[int] = TOKENISE_VERSION
    # The source may lie on this machine alone.
    at_driver: ClassVar[bool] = True

    encoder: EncoderReference
    task: TaskSpec
    layout: LayoutSpec
    fingerprint: str

    def spec(self) -> dict[str, Any]:
        return {
            "task": corpus_part(self.task),
            "layout": self.layout.model_dump(mode="json"),
            "model_type": self.encoder.model_type,
        }

    def outside(self) -> dict[str, str]:
        return {"source": self.fingerprint, "tokenizer": self.encoder.tokenizer_digest}

    def compute(self, encoder: None, context: Context) -> None:
        from papa.corpora.corpus import tokenise_corpus
        from papa.encoders.reference import load_tokenizer

        tokenise_corpus(
            self.task,
            self.layout,
            load_tokenizer(self.encoder),
            self.encoder,
            self.folder(context.store),
            content=self.fingerprint,
            shard_rows=context.execution.shard_rows,
            progress=context.progress,
            provenance=self.metadata({}),
        )


@dataclass(frozen=True, eq=False)
class OnText(Step):
    """A step on an encoder and a text; what else it reads and depends on it adds."""

    encoder: EncoderReference
    corpus: Tokenise

    def spec(self) -> dict[str, Any]:
        return {"encoder": identity(self.encoder)}

    def outside(self) -> dict[str, str]:
        return {"encoder": self.encoder.digest}

    def inputs(self) -> dict[str, Step]:
        return {"corpus": self.corpus}


def corpus_part(task: TaskSpec) -> dict[str, Any]:
    """What of a task decides its tokenised text; its source enters by its fingerprint."""
    part = {"kind", "columns", "labels", "slots", "train_rows", "validation_rows", "sample_seed"}
    if task.kind == "mlm":
        part = part | {"mask_seed"}
    if task.validation_slots:
        part = part | {"validation_slots"}
    return {
        **task.model_dump(mode="json", include=part),
        "regression": task.regression,
        # Of those without labels none decides how the text is read, nor do functions of the user's.
        "metric": "agreement"
        if task.metric in UNLABELLED_METRICS or task.kind == "causal"
        else "accuracy"
        if is_own(task.metric)
        else task.metric,
    }


def open_corpus(corpus: ArtifactReference) -> TokenisedCorpus:
    """A tokenised corpus; a process verifies each content once."""
    return _open(corpus.folder, corpus.digest)


@lru_cache(maxsize=8)
def _open(folder: Path, digest: str) -> TokenisedCorpus:
    from papa.corpora.corpus import load_corpus

    return load_corpus(folder)
