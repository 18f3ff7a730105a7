"""Stage ``average``: the average attention over a corpus, shard by shard.

Every shard's sums are an artifact of their own as soon as they are known, so a killed study repeats no
finished shard, and workers need share no disk. They are folded, in shard order, into running sums whenever enough of
them are complete, which bounds the space they take. Another run may work on the same shards at the same time: what it
finished is taken, and what it folded or removed meanwhile is no error.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from papa.encoders.reference import EncoderReference
from papa.errors import ArtifactError, TransientError
from papa.progress import Progress
from papa.storage.artifacts import (
    ArtifactReference,
    borrowed,
    complete_below,
    is_complete,
    published,
    read_metadata,
    remove,
)
from tasks.step import Session, Step, identity
from tasks.tokenise import open_corpus

if TYPE_CHECKING:
    from papa.attention.average import AttentionSums

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
    version: ClassVar[int] = 2

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
        if not self.is_complete(session.store):
            arguments = {
                "encoder_reference": self.encoder,
                "sums": shards.place(f"first-{shards.count}"),
                "folder": self.folder(session.store),
                "metadata": {**self.metadata(), "seconds": time.monotonic() - started},
            }
            try:
                session.pool.run(finish, arguments=arguments, urgency=_URGENCY)
            except ArtifactError:
                if not self.is_complete(session.store):
                    raise
        remove(shards.folder)


class _Shards:
    """The shards of one average: those done, those to do, and the sums folded so far."""

    def __init__(self, step: Average, session: Session, progress: Progress) -> None:
        self._step = step
        self._session = session
        self._progress = progress
        self.folder = session.store.folder("average-shards", step.key)
        self._rows = _shard_rows(step.corpus)
        self.count = len(self._rows)
        self._told = [0] * self.count

    def place(self, name: str) -> str:
        """The address of a shard or of folded sums."""
        return f"{self.folder}/{name}"

    def compute(self) -> None:
        """Finish every shard and fold all of them, unless another run finishes the average first."""
        there = complete_below(self.folder)
        todo = [index for index in range(self.count) if not _is_done(index, there)]
        for index in set(range(self.count)) - set(todo):
            self._told[index] = self._rows[index]
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
        while (folded := self._fold(1)) < self.count:
            if self._step.is_complete(self._session.store):
                return
            if f"shard-{folded}" not in complete_below(self.folder) and self._folded() == folded:
                raise TransientError(f"{self.place(f'shard-{folded}')} was removed while it was needed: run again")

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
                "shards": self.folder,
                "average": step.folder(self._session.store),
                "metadata": {"stage": "average-shards", "average": step.key, "shard": index},
            },
            progress=partial(self._tell, index),
            urgency=_URGENCY,
        )
        self._tell(index, 1, 1)

    def _tell(self, index: int, done: int, total: int) -> None:
        self._told[index] = self._rows[index] * done // max(total, 1)
        self._progress(sum(self._told), sum(self._rows))

    def _fold(self, at_least: int) -> int:
        """Fold the complete shards that follow the last fold, if there are enough; returns how many are folded."""
        there = complete_below(self.folder)
        first = stop = _folded(there)
        while f"shard-{stop}" in there:
            stop += 1
        if stop - first < at_least:
            return first
        parts = [self.place(f"shard-{index}") for index in range(first, stop)]
        if first:
            parts.insert(0, self.place(f"first-{first}"))
        arguments = {
            "parts": parts,
            "folder": self.place(f"first-{stop}"),
            "metadata": {"stage": "average-shards", "average": self._step.key, "shards": stop},
        }
        try:
            self._session.pool.run(fold, arguments=arguments, urgency=_URGENCY)
        except ArtifactError:
            # Another run may have folded these parts, or finished, and removed them.
            if self._folded() == first and not self._step.is_complete(self._session.store):
                raise
            return self._folded()
        for part in parts:
            remove(part)
        return stop

    def _folded(self) -> int:
        return _folded(complete_below(self.folder))


def _shard_rows(corpus: ArtifactReference) -> list[int]:
    """Rows of each shard of a tokenised corpus's training text."""
    return [shard["rows"] for shard in read_metadata(corpus.path)["shards"]["train"]]


def _folded(there: Iterable[str]) -> int:
    """How many shards the longest of the folded sums holds."""
    return max((int(name[1]) for one in there if (name := re.fullmatch(r"first-(\d+)", one))), default=0)


def _is_done(index: int, there: Sequence[str]) -> bool:
    return f"shard-{index}" in there or index < _folded(there)


def average_shard(
    *,
    encoder: Any,
    corpus: ArtifactReference,
    index: int,
    slots: int,
    batch_tokens: int | None,
    shards: str,
    average: str,
    metadata: Mapping[str, Any],
    progress: Progress,
) -> None:
    """Publish the attention sums of one shard below ``shards``, unless they or the whole average are there by now."""
    from papa.attention.average import average_split

    if _is_done(index, complete_below(shards)) or is_complete(average):
        return
    tokenised = open_corpus(corpus.folder, corpus.digest)
    sums = average_split(
        encoder,
        tokenised.split("train").shard(index),
        slots=slots,
        batch_tokens=encoder.tokens_per_batch(batch_tokens),
        progress=progress,
    )
    with published(f"{shards}/shard-{index}", metadata) as scratch:
        sums.save(scratch / SUMS)


def fold(*, parts: Sequence[str], folder: str, metadata: Mapping[str, Any], progress: Progress) -> None:
    """Publish the sum of ``parts``, added in their order, at ``folder``."""
    from papa.attention.average import AttentionAverager

    averager: AttentionAverager | None = None
    for number, part in enumerate(parts):
        sums = _read_sums(part)
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
    sums: str,
    folder: str,
    metadata: Mapping[str, Any],
    progress: Progress,
) -> None:
    """Publish the constant matrices that the sums over all shards give."""
    from papa.attention.average import AttentionAverager

    total = _read_sums(sums)
    layers, heads, slots, _ = total.sums.shape
    averager = AttentionAverager(layers, heads, slots)
    averager.merge(total)
    averager.result().save(folder, encoder_reference, metadata)


def _read_sums(address: str) -> AttentionSums:
    """Verified sums.

    Raises:
        ArtifactError: they are damaged, or were removed.
    """
    from papa.attention.average import AttentionSums

    try:
        with borrowed(address, SUMS) as folder:
            return AttentionSums.load(folder / SUMS)
    except FileNotFoundError:
        raise ArtifactError(f"{address} was removed while it was read: run again") from None
