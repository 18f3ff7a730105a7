"""Stage ``tokenise``: a task's text laid out in S slots, as Arrow shards."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from papa.encoders.reference import EncoderReference
from papa.progress import Progress
from papa.spec import LayoutSpec, TaskSpec
from papa.storage.artifacts import Address, is_complete
from tasks.step import Session, Step

if TYPE_CHECKING:
    from papa.corpora.corpus import TokenisedCorpus


@dataclass(frozen=True)
class Tokenise(Step):
    """Tokenise both splits of a task.

    Attributes:
        encoder: whose tokenizer.
        task: whose text.
        layout: where the paper and its authors' code part ways.
        fingerprint: what the source holds.
    """

    stage: ClassVar[str] = "tokenise"
    version: ClassVar[int] = 1

    encoder: EncoderReference
    task: TaskSpec
    layout: LayoutSpec
    fingerprint: str

    def spec(self) -> dict[str, Any]:
        from papa.corpora import TOKENISE_VERSION

        return {
            "format": TOKENISE_VERSION,
            "task": corpus_part(self.task),
            "layout": self.layout.model_dump(mode="json"),
            "model_type": self.encoder.model_type,
        }

    def upstream(self) -> dict[str, str | None]:
        return {"source": self.fingerprint, "tokenizer": self.encoder.tokenizer_digest}

    def run(self, session: Session, progress: Progress) -> None:
        session.pool.run(
            tokenise,
            arguments={
                "encoder_reference": self.encoder,
                "task": self.task,
                "layout": self.layout,
                "folder": self.folder(session.store),
                "shard_rows": session.execution.shard_rows,
            },
            progress=progress,
            urgency=3,
            at_driver=True,
        )


def corpus_part(task: TaskSpec) -> dict[str, Any]:
    """What of a task decides its tokenised text; the source enters by its fingerprint."""
    part = {"kind", "columns", "labels", "slots", "train_rows", "validation_rows", "sample_seed"}
    if task.kind == "mlm":
        part = part | {"mask_seed"}
    return {
        **task.model_dump(mode="json", include=part),
        "regression": task.regression,
        "metric": task.metric,
    }


def tokenise(
    *,
    encoder_reference: EncoderReference,
    task: TaskSpec,
    layout: LayoutSpec,
    folder: Address,
    shard_rows: int,
    progress: Progress,
) -> None:
    """Publish the tokenised corpus at ``folder``, unless it is there by now."""
    if is_complete(folder):
        return
    from papa.corpora.corpus import tokenise_corpus
    from papa.encoders.reference import load_tokenizer

    tokenise_corpus(
        task,
        layout,
        load_tokenizer(encoder_reference),
        encoder_reference,
        folder,
        shard_rows=shard_rows,
        progress=progress,
    )


@lru_cache(maxsize=8)
def open_corpus(folder: Path, digest: str) -> TokenisedCorpus:
    """The tokenised corpus at ``folder``, verified once a process for each content."""
    from papa.corpora.corpus import load_corpus

    return load_corpus(folder)
