"""Work of one step that is spread over all workers, shard by shard.

A worker that is killed loses the shard that it had, which goes to another one. Results come in any
order, so whoever adds them up has to do so exactly, or by position.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from papa.progress import Progress
from papa.worker import Executor, ModelReference

CALLS_PER_WORKER = 4
"""Few calls, as each costs something; more than one, as a lost worker loses its call."""
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Shard:
    """A share of the work of a step: ``arguments`` of its own, and its ``size`` in any unit."""

    arguments: Mapping[str, Any]
    size: int


def run_shards(
    executor: Executor,
    function: Callable[..., _Result],
    shards: Sequence[Shard],
    *,
    arguments: Mapping[str, Any],
    model: ModelReference | None,
    progress: Progress,
) -> Iterator[_Result]:
    """Call a function for each shard, on all workers at a time, with the ``arguments`` of all
    shards and its own; yield results as they come.
    """
    whole = sum(shard.size for shard in shards)
    done_by_shard = [0] * len(shards)
    lock = threading.Lock()

    def advance(index: int, done: int, total: int) -> None:
        with lock:
            done_by_shard[index] = shards[index].size * done // max(total, 1)
            done_by_all = sum(done_by_shard)
        progress(done_by_all, whole)

    def run(index: int) -> _Result:
        result: _Result = executor.run(
            function,
            model=model,
            arguments={**arguments, **shards[index].arguments},
            progress=partial(advance, index),
        )
        return result

    threads = ThreadPoolExecutor(executor.size)
    try:
        for future in as_completed([threads.submit(run, index) for index in range(len(shards))]):
            yield future.result()
    finally:
        # After an error nobody waits for what other workers compute.
        threads.shutdown(wait=False, cancel_futures=True)
