"""Stage ``tokenise``: a task's text laid out in S slots, as Arrow shards."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from papa.models.reference import EncoderReference
from papa.spec import LayoutSpec, TaskSpec
from papa.storage.artifacts import ArtifactReference, read_metadata
from papa.tasks.step import Context, stage
from papa.text.corpus import TOKENISE_VERSION

if TYPE_CHECKING:
    from papa.text.corpus import TokenisedCorpus


@stage("tokenise", version=TOKENISE_VERSION, where="driver")
def tokenise(
    run: Context, tokenizer: EncoderReference, task: TaskSpec, layout: LayoutSpec, fingerprint: str
) -> None:
    """Tokenise both splits of a task, whose source has the ``fingerprint``."""
    from papa.models.reference import load_tokenizer
    from papa.text.corpus import tokenise_corpus

    asked: Any = {"shard_rows": run.execution.shard_rows, "progress": run.progress}
    asked |= {"content": fingerprint, "provenance": run.metadata()}
    place = run.step.folder(run.store)
    tokenise_corpus(task, layout, load_tokenizer(tokenizer), place, **asked)


def open_corpus(corpus: ArtifactReference) -> TokenisedCorpus:
    """A tokenised corpus; a process verifies each once, and again where it was made again."""
    return _open(corpus, read_metadata(corpus)["data"])


@lru_cache(maxsize=8)
def _open(corpus: ArtifactReference, data: str) -> TokenisedCorpus:
    from papa.text.corpus import load_corpus

    return load_corpus(corpus)
