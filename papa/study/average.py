"""Stage ``average``: the average attention over a corpus, shard by shard.

Every shard's sums are an artifact, so a killed study repeats no finished shard. They are folded, in
shard order, whenever enough of them are complete. Behind a URI a run on another machine may work on
the same shards: what it finished is used, and what it folded or removed meanwhile is no error.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from papa.errors import ArtifactError, TransientError
from papa.progress import Progress
from papa.storage.artifacts import (
    ArtifactReference,
    borrowed,
    check_form,
    complete_below,
    published,
    read_metadata,
    reading,
    remove,
    sha256_of_json,
)
from papa.study.step import Session, worker_clock
from papa.study.store import Store
from papa.study.tokenise import OnText, open_corpus

if TYPE_CHECKING:
    from papa.attention.average import AttentionSums
    from papa.corpora.split import TokenisedSplit
    from papa.encoders.encoder import Encoder

SUMS = "sums.safetensors"
_FOLDED_AT_ONCE = 16
_URGENCY = 2


@dataclass(frozen=True, eq=False)
class Average(OnText):
    """Average an encoder's attention over the training text of a corpus, in ``slots`` slots."""

    stage: ClassVar[str] = "average"
    version: ClassVar[int] = 2

    slots: int

    def spec(self) -> dict[str, Any]:
        return {**super().spec(), "slots": self.slots}

    def run(self, session: Session, progress: Progress) -> None:
        started = time.monotonic()
        shards = _Shards(self, session, progress)
        shards.compute()
        if not self.is_complete(session.store):
            arguments = {
                "sums": shards.address(f"first-{shards.count}"),
                "store": session.store,
                "metadata": {**self.metadata(shards.found), "seconds": time.monotonic() - started},
            }
            try:
                session.pool.run(self.finish, arguments=arguments, urgency=_URGENCY)
            except ArtifactError:
                if not self.is_complete(session.store):
                    raise
        remove(shards.folder)

    def shards(self, store: Store, corpus: ArtifactReference) -> str:
        """The address of the folder of shards of this very content, however another run cut it."""
        return store.folder("average-shards", sha256_of_json([self.key, corpus.digest]))

    def compute_shard(
        self,
        *,
        index: int,
        store: Store,
        batch_tokens: int | None,
        progress: Progress,
        encoder: Encoder | None = None,
    ) -> None:
        """Publish the attention sums of one shard; runs on a worker. A decoder needs no encoder."""

        corpus = self.corpus.reference(store)
        shards = self.shards(store, corpus)
        # While this call waited for a worker, a run on another machine may have made the rest
        # superfluous.
        if _is_done(index, complete_below(shards)) or self.is_complete(store):
            return
        shard = open_corpus(corpus).split("train").shard(index)
        device = "cpu" if encoder is None else encoder.device.type
        started = worker_clock(device)
        if encoder is None:
            sums = self._of_decoder(shard, progress)
        else:
            from papa.attention.average import average_split

            tokens = encoder.tokens_per_batch(batch_tokens)
            sums = average_split(
                encoder, shard, slots=self.slots, batch_tokens=tokens, progress=progress
            )
            encoder.check_unchanged()
        work = {"worker_seconds": worker_clock(device) - started, "device": device}
        metadata = {"stage": "average-shards", "average": self.key, "shard": index, **work}
        with published(f"{shards}/shard-{index}", metadata) as folder:
            sums.save(folder / SUMS)

    def _of_decoder(self, shard: TokenisedSplit, progress: Progress) -> AttentionSums:
        from papa.probes.own import average_by_position
        from papa.probes.own_model import opened_own

        model, special_tokens = opened_own(self.corpus.task, self.encoder)
        return average_by_position(model, shard, special_tokens, self.encoder.heads, progress)

    def finish(
        self, *, sums: str, store: Store, metadata: Mapping[str, Any], progress: Progress
    ) -> None:
        """Publish the constant matrices that the sums over all shards give; runs on a worker."""
        work = _work_in([sums])
        shape = (self.encoder.layers, self.encoder.heads, self.slots, self.slots)
        _read_sums(sums, shape).average().save(
            self.folder(store), self.encoder, {**metadata, **work}
        )


class _Shards:
    """The shards of one average: those done, those to do, and the sums folded so far."""

    def __init__(self, step: Average, session: Session, progress: Progress) -> None:
        self._step = step
        self._session = session
        self._progress = progress
        self.found = step.found(session.store)
        corpus = self.found[step.corpus]
        self.folder = step.shards(session.store, corpus)
        self._rows = [shard["rows"] for shard in read_metadata(corpus.path)["shards"]["train"]]
        self.count = len(self._rows)
        self._rows_done = [0] * self.count

    def address(self, name: str) -> str:
        """The address of a shard or of folded sums."""
        return f"{self.folder}/{name}"

    def compute(self) -> None:
        """Finish every shard and fold all, unless another run finishes the average first."""
        there = complete_below(self.folder)
        todo = [index for index in range(self.count) if not _is_done(index, there)]
        for index in set(range(self.count)) - set(todo):
            self._rows_done[index] = self._rows[index]
        for _ in self._session.pool.each(self._compute, todo):
            self._fold(_FOLDED_AT_ONCE)
        while (folded := self._fold(1)) < self.count:
            if self._step.is_complete(self._session.store):
                return
            if f"shard-{folded}" not in complete_below(self.folder) and self._folded() == folded:
                raise TransientError(
                    f"{self.address(f'shard-{folded}')} was removed while it was needed: run again"
                )

    def _compute(self, index: int) -> None:
        store, execution = self._session.store, self._session.execution
        self._session.pool.run(
            self._step.compute_shard,
            encoder=None if self._step.encoder.causal else self._step.encoder,
            arguments={"index": index, "store": store, "batch_tokens": execution.batch_tokens},
            progress=partial(self._advance, index),
            urgency=_URGENCY,
        )
        self._advance(index, 1, 1)

    def _advance(self, index: int, done: int, total: int) -> None:
        self._rows_done[index] = self._rows[index] * done // max(total, 1)
        self._progress(sum(self._rows_done), sum(self._rows))

    def _fold(self, at_least: int) -> int:
        """Fold the complete shards that follow the last fold, if enough; returns how many are."""
        there = complete_below(self.folder)
        first = stop = _folded(there)
        while f"shard-{stop}" in there:
            stop += 1
        if stop - first < at_least:
            return first
        parts = [self.address(f"shard-{index}") for index in range(first, stop)]
        if first:
            parts.insert(0, self.address(f"first-{first}"))
        arguments = {
            "parts": parts,
            "folder": self.address(f"first-{stop}"),
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


def _folded(there: Iterable[str]) -> int:
    """How many shards the longest of the folded sums holds."""
    return max(
        (int(name[1]) for entry in there if (name := re.fullmatch(r"first-(\d+)", entry))),
        default=0,
    )


def _is_done(index: int, there: Sequence[str]) -> bool:
    return f"shard-{index}" in there or index < _folded(there)


def fold(
    *, parts: Sequence[str], folder: str, metadata: Mapping[str, Any], progress: Progress
) -> None:
    """Publish the sum of ``parts``, added in their order, at ``folder``; runs on a worker."""
    first, *others = parts
    total = _read_sums(first)
    for number, part in enumerate(others, 1):
        total.merge(_read_sums(part, tuple(total.sums.shape)))
        progress(number, len(others))
    with published(folder, {**metadata, **_work_in(parts)}) as scratch:
        total.save(scratch / SUMS)


def _work_in(parts: Iterable[str]) -> dict[str, Any]:
    """The seconds of workers that parts of an average took, and the device."""
    found = [read_metadata(part) for part in parts]
    return {
        "worker_seconds": sum(document.get("worker_seconds", 0.0) for document in found),
        "device": found[-1].get("device"),
    }


def _read_sums(address: str, shape: tuple[int, ...] | None = None) -> AttentionSums:
    """The sums at ``address``, verified, of shape [L, H, S, S], or of any."""
    import torch

    from papa.attention.average import AttentionSums

    try:
        with borrowed(address, SUMS) as folder, reading(address):
            found = AttentionSums.load(folder / SUMS)
            shape = shape or (*found.sums.shape[:2], *found.counts.shape)
            check_form(
                sums=((tuple(found.sums.shape), found.sums.dtype), (shape, torch.float64)),
                counts=(
                    (tuple(found.counts.shape), found.counts.dtype),
                    (shape[2:], torch.float64),
                ),
            )
            return found
    except FileNotFoundError:
        raise ArtifactError(f"{address} was removed while it was read: run again") from None
