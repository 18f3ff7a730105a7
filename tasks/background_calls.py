"""Calls in a thread beside a study, such as those of MLflow: the study neither waits for them nor
fails with them.
"""

import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

Job = Callable[[], object]
_CALL_TIMEOUT_SECONDS = 120.0
"""How long ``finish`` waits for one job: an upload of matrices may take a minute."""
_FINISH_TIMEOUT_SECONDS = 600.0
"""How long ``finish`` waits for all jobs."""


class BackgroundCalls:
    """Jobs that a thread calls one after the other.

    When one fails, ``on_failure`` gets a sentence, and that job and all later ones wait for
    ``finish``, which tries them once more, up to the first that fails again.
    """

    def __init__(self, on_failure: Callable[[str], None]) -> None:
        self._on_failure = on_failure
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
            until = min(began + _FINISH_TIMEOUT_SECONDS, self._call_began + _CALL_TIMEOUT_SECONDS)
            if time.monotonic() > until:
                return f"its calls took longer than {time.monotonic() - began:.0f} s"
            self._thread.join(0.1)
        return self._last_failure

    def _call_jobs(self) -> None:
        jobs = iter(self._jobs.get, None)
        for job in jobs:
            failure = self._run_job(job)
            if failure:
                self._on_failure(f"what is left is tried again when the study is over: {failure}")
                # Waits for ``finish``, after which no job follows.
                postponed = [job, *jobs]
                self._last_failure = next(filter(None, map(self._run_job, postponed)), "")

    def _run_job(self, job: Job) -> str:
        """Run a job; return why it failed, or ""."""
        self._call_began = time.monotonic()
        try:
            job()
        except Exception as error:  # Whatever it is, the study goes on.
            return str(error) or type(error).__name__
        return ""
