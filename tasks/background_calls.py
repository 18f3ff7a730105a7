"""Calls in a thread beside a study, such as those of MLflow: the study neither waits for them nor
fails with them.
"""

import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

Job = Callable[[], object]
_SECONDS_OF_A_CALL = 120.0
"""How long ``finish`` waits for one job: an upload of matrices may take a minute."""
_SECONDS_OF_ALL = 600.0
"""How long ``finish`` waits for all jobs."""


class BackgroundCalls:
    """Jobs that a thread calls one after the other.

    When one fails, ``failing`` gets a sentence, and that job and all later ones wait for
    ``finish``, which tries them once more, up to the first that fails again.
    """

    def __init__(self, failing: Callable[[str], None]) -> None:
        self._failing = failing
        self._last_failure = ""
        self._call_began = 0.0
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._thread = threading.Thread(
            target=self._call_jobs, name="background calls", daemon=True
        )

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def add(self, job: Job) -> None:
        """Queue a job; return at once."""
        self._jobs.put(job)

    def finish(self) -> str:
        """Wait until every job was called, or they take too long; return why some failed, or ""."""
        began = self._call_began = time.monotonic()
        self._jobs.put(None)
        while self._thread.is_alive():
            until = min(began + _SECONDS_OF_ALL, self._call_began + _SECONDS_OF_A_CALL)
            if time.monotonic() > until:
                return f"its calls took longer than {time.monotonic() - began:.0f} s"
            self._thread.join(0.1)
        return self._last_failure

    def _call_jobs(self) -> None:
        postponed = list[Job]()
        for job in iter(self._jobs.get, None):
            failure = "" if postponed else self._failure_of(job)
            if failure:
                self._failing(f"what is left is tried again when the study is over: {failure}")
            if failure or postponed:
                postponed.append(job)
        for job in postponed:
            self._last_failure = self._failure_of(job)
            if self._last_failure:
                return

    def _failure_of(self, job: Job) -> str:
        """Call a job; return why it failed, or ""."""
        self._call_began = time.monotonic()
        try:
            job()
        except Exception as error:  # Whatever it is, the study goes on.
            return str(error) or type(error).__name__
        return ""
