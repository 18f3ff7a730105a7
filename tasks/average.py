"""Stage ``average``: the average attention over a corpus, shard by shard.

Every shard's sums are an artifact of their own as soon as they are known, so a killed study repeats no
finished shard. They are folded, in shard order, into running sums whenever enough of them are complete, which
bounds the disk they take.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from papa.artifacts import ArtifactReference, is_complete, published, read_metadata, verify
from papa.encoders.reference import EncoderReference
from papa.progress import Progress
from tasks.session import Session
from tasks.step import Step, identity
from tasks.tokenise import open_corpus

SUMS = "sums.safetensors"
_FOLDED_AT_ONCE = 16
_URGENCY = 2


@dataclass(frozen=True)
class Average(Step):
    """Average an encoder's attention over the training text of a corpus.

    Attributes:
        encoder: whose attention.
        corpus: the tokenised corpus.
        slots: S.
    """

    stage: ClassVar[str] = "average"
    version: ClassVar[int] = 1

    encoder: EncoderReference
    corpus: ArtifactReference
    slots: int

    def spec(self) -> dict[str, Any]:
        return {"encoder": identity(self.encoder), "slots": self.slots}

    def upstream(self) -> dict[str, str | None]:
        return {"encoder": self.encoder.digest, "corpus": self.corpus.digest}

    def run(self, session: Session, progress: Progress) -> None:
        started = time.monotonic()
        shards = _Shards(self, session, progress)
        shards.compute()
        metadata = {**self.metadata(), "seconds": time.monotonic() - started}
        session.pool.run(
            finish,
            arguments={
                "encoder_reference": self.encoder,
                "sums": shards.folded(),
                "folder": self.folder(session.store),
                "metadata": metadata,
            },
            urgency=_URGENCY,
        )
        shutil.rmtree(shards.folder, ignore_errors=True)


class _Shards:
    """The shards of one average: those done, those to do, and the sums folded so far."""

    def __init__(self, step: Average, session: Session, progress: Progress) -> None:
        self._step = step
        self._session = session
        self._progress = progress
        self.folder = session.store.folder("average-shards", step.key)
        self._rows = _shard_rows(step.corpus.folder)
        self.count = len(self._rows)
        self._told = [0] * self.count

    def compute(self) -> None:
        """Finish every shard and fold all of them."""
        first, _ = self._last_fold()
        self._told[:first] = self._rows[:first]
        todo = []
        for index in range(first, self.count):
            if is_complete(self._shard(index)):
                self._told[index] = self._rows[index]
            else:
                todo.append(index)
        with ThreadPoolExecutor(max_workers=self._session.pool.size) as executor:
            pending: set[Future[None]] = {executor.submit(self._compute, index) for index in todo}
            try:
                while pending:
                    done, pending = wait(pending, return_when=FIRST_COMPLETED)
                    for future in done:
                        future.result()
                    self._fold(_FOLDED_AT_ONCE)
            except BaseException:
                executor.shutdown(wait=False, cancel_futures=True)
                raise
        self._fold(1)

    def folded(self) -> Path:
        """The sums over all shards."""
        count, folder = self._last_fold()
        assert count == self.count
        assert folder is not None
        return folder

    def _compute(self, index: int) -> None:
        step = self._step
        self._session.pool.run(
            average_shard,
            encoder=step.encoder,
            arguments={
                "corpus": step.corpus,
                "index": index,
                "slots": step.slots,
                "batch_tokens": self._session.execution.batch_tokens,
                "folder": self._shard(index),
                "metadata": {"stage": "average-shards", "average": step.key, "shard": index},
            },
            progress=partial(self._tell, index),
            urgency=_URGENCY,
        )
        self._tell(index, 1, 1)

    def _tell(self, index: int, done: int, total: int) -> None:
        self._told[index] = self._rows[index] * done // max(total, 1)
        self._progress(sum(self._told), sum(self._rows))

    def _fold(self, at_least: int) -> None:
        """Fold the complete shards that follow the last fold, if there are enough of them."""
        first, base = self._last_fold()
        stop = first
        while stop < self.count and is_complete(self._shard(stop)):
            stop += 1
        if stop - first < at_least:
            return
        parts = [self._shard(index) for index in range(first, stop)]
        self._session.pool.run(
            fold,
            arguments={
                "parts": [*([base] if base else []), *parts],
                "folder": self.folder / f"first-{stop}",
                "metadata": {"stage": "average-shards", "average": self._step.key, "shards": stop},
            },
            urgency=_URGENCY,
        )
        for part in [*([base] if base else []), *parts]:
            shutil.rmtree(part, ignore_errors=True)

    def _last_fold(self) -> tuple[int, Path | None]:
        found = [
            (int(name[1]), path)
            for path in self.folder.glob("first-*")
            if (name := re.fullmatch(r"first-(\d+)", path.name)) and is_complete(path)
        ]
        return max(found, default=(0, None))

    def _shard(self, index: int) -> Path:
        return self.folder / f"shard-{index}"


def _shard_rows(corpus: Path) -> list[int]:
    """Rows of each shard of a tokenised corpus's training text."""
    return [shard["rows"] for shard in read_metadata(corpus)["shards"]["train"]]


def average_shard(
    *,
    encoder: Any,
    corpus: ArtifactReference,
    index: int,
    slots: int,
    batch_tokens: int | None,
    folder: Path,
    metadata: Mapping[str, Any],
    progress: Progress,
) -> None:
    """Publish the attention sums of one shard at ``folder``."""
    from papa.attention.averager import average_split

    tokenized = open_corpus(corpus.folder, corpus.digest)
    sums = average_split(
        encoder,
        tokenized.split("train").shard(index),
        slots=slots,
        pad_token_id=tokenized.pad_token_id,
        batch_tokens=encoder.tokens_a_batch(batch_tokens),
        progress=progress,
    )
    with published(folder, metadata) as scratch:
        sums.save(scratch / SUMS)


def fold(*, parts: Sequence[Path], folder: Path, metadata: Mapping[str, Any], progress: Progress) -> None:
    """Publish the sum of ``parts``, added in their order, at ``folder``."""
    from papa.attention.averager import AttentionAverager, AttentionSums

    averager: AttentionAverager | None = None
    for number, part in enumerate(parts):
        verify(part)
        sums = AttentionSums.load(part / SUMS)
        if averager is None:
            layers, heads, slots, _ = sums.sums.shape
            averager = AttentionAverager(layers, heads, slots)
        averager.merge(sums)
        progress(number + 1, len(parts))
    assert averager is not None
    with published(folder, metadata) as scratch:
        averager.sums_so_far().save(scratch / SUMS)


def finish(
    *,
    encoder_reference: EncoderReference,
    sums: Path,
    folder: Path,
    metadata: Mapping[str, Any],
    progress: Progress,
) -> None:
    """Publish the constant matrices that the sums over all shards give."""
    from papa.attention.averager import AttentionAverager, AttentionSums

    verify(sums)
    total = AttentionSums.load(sums / SUMS)
    layers, heads, slots, _ = total.sums.shape
    averager = AttentionAverager(layers, heads, slots)
    averager.merge(total)
    averager.result().save(folder, encoder_reference, metadata)
