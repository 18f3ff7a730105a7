"""Stage ``average``: the average attention over a corpus, its shards spread over all workers.

Sums of attention are exact in any grouping (``papa.attention.average``), so whoever is done first
is added first. Nothing is kept of an average that was not finished.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from papa.progress import Progress
from papa.storage.artifacts import read_metadata
from papa.study.step import Session, worker_clock
from papa.study.store import Store
from papa.study.tokenise import OnText, open_corpus

if TYPE_CHECKING:
    from jaxtyping import Float

    from papa.attention.average import AttentionSums
    from papa.corpora.split import TokenisedSplit
    from papa.encoders.encoder import Encoder

_CALLS_A_WORKER = 4
"""A worker that is lost takes a part of its work with it, and large sums are seldom sent."""


@dataclass(frozen=True, eq=False)
class Average(OnText):
    """Average an encoder's attention over the training text of a corpus, in ``slots`` slots."""

    stage: ClassVar[str] = "average"
    version: ClassVar[int] = 2

    slots: int

    def spec(self) -> dict[str, Any]:
        return {**super().spec(), "slots": self.slots}

    def run(self, session: Session, progress: Progress) -> None:
        started, found = time.monotonic(), self.found(session.store)
        corpus = read_metadata(found[self.corpus].path)
        rows = [shard["rows"] for shard in corpus["shards"]["train"]]
        at_once = -(-len(rows) // (_CALLS_A_WORKER * session.pool.size))
        calls = [
            range(len(rows))[first : first + at_once] for first in range(0, len(rows), at_once)
        ]
        total = _Total((self.encoder.layers, self.encoder.heads, self.slots, self.slots))
        done = dict.fromkeys(calls, 0)

        def advance(call: range, part: int, parts: int) -> None:
            done[call] = sum(rows[shard] for shard in call) * part // max(parts, 1)
            progress(sum(done.values()), sum(rows))

        def compute(call: range) -> None:
            total.add(
                *session.pool.run(
                    self.sum_shards,
                    encoder=None if self.encoder.causal else self.encoder,
                    arguments={
                        "shards": call,
                        "store": session.store,
                        "batch_tokens": session.execution.batch_tokens,
                    },
                    progress=partial(advance, call),
                )
            )
            advance(call, 1, 1)

        for _ in session.pool.each(compute, calls):
            pass
        work = {
            "seconds": time.monotonic() - started,
            "worker_seconds": total.seconds,
            "device": total.device,
        }
        arguments = {
            "sums": total.sums,
            "counts": total.counts,
            "store": session.store,
            "metadata": {**self.metadata(found), **work},
        }
        session.pool.run(self.finish, arguments=arguments)

    def sum_shards(
        self,
        *,
        shards: Sequence[int],
        store: Store,
        batch_tokens: int | None,
        progress: Progress,
        encoder: Encoder | None = None,
    ) -> tuple[Float[np.ndarray, "l h s s"], Float[np.ndarray, "s s"], float, str]:
        """The sums and counts over some shards, the seconds of work and the device; runs on a
        worker. A decoder needs no encoder.
        """
        split = open_corpus(self.corpus.reference(store)).split("train")
        device = "cpu" if encoder is None else encoder.device.type
        started = worker_clock(device)
        total: AttentionSums | None = None
        for number, shard in enumerate(shards):

            def advance(done: int, of: int, before: int = number) -> None:
                progress(before * of + done, len(shards) * of)

            sums = self._of_shard(encoder, split.shard(shard), batch_tokens, advance)
            if total is None:
                total = sums
            else:
                total.merge(sums)
        assert total is not None
        return total.sums.numpy(), total.counts.numpy(), worker_clock(device) - started, device

    def _of_shard(
        self,
        encoder: Encoder | None,
        shard: TokenisedSplit,
        batch_tokens: int | None,
        progress: Progress,
    ) -> AttentionSums:
        if encoder is not None:
            from papa.attention.average import average_split

            tokens = encoder.tokens_per_batch(batch_tokens)
            return average_split(
                encoder, shard, slots=self.slots, batch_tokens=tokens, progress=progress
            )
        from papa.probes.own import average_by_position
        from papa.probes.own_model import opened_own

        model, special_tokens = opened_own(self.corpus.task, self.encoder)
        return average_by_position(model, shard, special_tokens, self.encoder.heads, progress)

    def finish(
        self,
        *,
        sums: Float[np.ndarray, "l h s s"],
        counts: Float[np.ndarray, "s s"],
        store: Store,
        metadata: Mapping[str, Any],
        progress: Progress,
    ) -> None:
        """Publish the constant matrices that the sums over all shards give; runs on a worker."""
        import torch

        from papa.attention.average import AttentionSums

        total = AttentionSums(torch.tensor(sums), torch.tensor(counts))
        total.average().save(self.folder(store), self.encoder, metadata)


class _Total:
    """Sums that workers send, added as they come; what they sent is not kept."""

    def __init__(self, shape: tuple[int, int, int, int]) -> None:
        self._lock = threading.Lock()
        self.sums, self.counts = np.zeros(shape), np.zeros(shape[2:])
        self.seconds, self.device = 0.0, "cpu"

    def add(self, sums: Any, counts: Any, seconds: float, device: str) -> None:
        with self._lock:
            self.sums += sums
            self.counts += counts
            self.seconds += seconds
            self.device = device
