"""Work of one step that is spread over all workers, call by call.

A worker that is killed loses the call that it had, which goes to another one. Results come in any
order, so whoever adds them up has to do so exactly, or by position.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from papa.progress import Progress

CALLS_PER_WORKER = 4
"""Few calls, as each costs something; more than one, as a lost worker loses its call."""
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class WorkerCall:
    """A share of a step's work: its ``arguments``, and its ``size`` in any unit."""

    arguments: Mapping[str, Any]
    size: int


def run_on_all_workers(
    run: Callable[..., _Result], calls: Sequence[WorkerCall], workers: int, progress: Progress
) -> Iterator[_Result]:
    """Call ``run``, which waits for a worker, with the arguments of each of the ``calls`` and a
    ``progress``, as many at a time as there are workers; yield results as they come.
    """
    whole = sum(call.size for call in calls)
    done_by_call = [0] * len(calls)
    lock = threading.Lock()

    def advance(index: int, done: int, total: int) -> None:
        with lock:
            done_by_call[index] = calls[index].size * done // max(total, 1)
            progress(sum(done_by_call), whole)

    def run_call(index: int) -> _Result:
        result = run(progress=partial(advance, index), **calls[index].arguments)
        # A worker in another process does not say how far it is.
        advance(index, 1, 1)
        return result

    threads = ThreadPoolExecutor(workers)
    try:
        for future in as_completed(
            [threads.submit(run_call, index) for index in range(len(calls))]
        ):
            yield future.result()
    finally:
        # After an error nobody waits for what other workers compute.
        threads.shutdown(wait=False, cancel_futures=True)
