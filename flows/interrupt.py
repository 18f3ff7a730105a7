"""Ctrl-C and SIGTERM: a sentence at once, then everything that the command started ends within
seconds.

Nothing unwinds: threads that wait for workers in the middle of a computation would take minutes to.
What a killed process leaves is what a run can always go on from (artifacts appear whole, locks end
with their process), so the command is killed, after it has said what is kept.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

import psutil

from papa.credentials import without_credentials

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_HUSH_SECONDS = 0.5
_ENDING_SECONDS = 2.0
_DEATH_SECONDS = 1.0


class Interruption:
    """Inside its block SIGINT and SIGTERM end the process, with exit code 130 or 143; a second one
    ends it at once.

    Python calls a signal's handler in the main thread, between two of its instructions, and Prefect
    replaces the handler of SIGTERM. So a thread of its own reads the signal's number from Python's
    wakeup pipe.

    ``kept`` says what is kept; ``hush`` ends what else writes to the terminal; ``endings`` are
    called before processes are killed, in two seconds at most, and ``last`` after that.
    """

    def __init__(self) -> None:
        self.kept: Callable[[], str] = lambda: ""
        self.hush: Callable[[], None] = lambda: None
        self.endings: list[Callable[[], None]] = []
        self.last: list[Callable[[], None]] = []
        self._ending: threading.Thread | None = None

    def __enter__(self) -> Interruption:
        # Who starts a command with a signal ignored, such as nohup or a shell's background job,
        # wants it ignored.
        self._before = {
            number: signal.signal(number, lambda *_: None)
            for number in _SIGNALS
            if signal.getsignal(number) != signal.SIG_IGN
        }
        reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._wakeup = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        threading.Thread(target=self._watch, args=(reader,), name="signals", daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._ending is not None:
            # What fails now fails because processes are being killed.
            self._ending.join()
        signal.set_wakeup_fd(self._wakeup)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self._writer)

    def _watch(self, reader: int) -> None:
        with open(reader, "rb", buffering=0) as pipe:
            while number := pipe.read(1):
                if number[0] not in self._before:
                    continue
                if self._ending is not None:
                    self._kill(number[0])
                self._ending = threading.Thread(target=self._end, args=(number[0],), daemon=True)
                self._ending.start()

    def _end(self, number: int) -> None:
        _in_time(_HUSH_SECONDS, self.hush)
        # A spinner or bar that was cut off leaves its line, and the cursor hidden.
        clear = "\r\x1b[2K\x1b[?25h" if os.isatty(2) else ""
        command = without_credentials(shlex.join(["papa", *sys.argv[1:]]))
        kept = f"{text}; " if (text := self.kept()) else ""
        sentence = f"interrupted, ending (once more: at once): {kept}to go on run: {command}"
        os.write(2, f"{clear}{sentence}\n".encode())
        # Engines complain of processes that are gone.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        _in_time(_ENDING_SECONDS, *self.endings)
        self._kill(number)

    def _kill(self, number: int) -> None:
        with suppress(psutil.Error):
            end_descendants()
        _in_time(_DEATH_SECONDS, *self.last)
        os._exit(128 + number)


def end_descendants() -> None:
    """Kill every process below this one."""
    own = psutil.Process()
    for child in own.children():
        # What stands still starts no further process.
        with suppress(psutil.Error):
            child.suspend()
    below = own.children(recursive=True)
    for process in below:
        with suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(below, timeout=_DEATH_SECONDS)


def _in_time(seconds: float, *calls: Callable[[], None]) -> None:
    """Call each, as far as that goes within some seconds; none of them stops the ending."""

    def every() -> None:
        for call in calls:
            with suppress(Exception):
                call()

    thread = threading.Thread(target=every, daemon=True)
    thread.start()
    thread.join(seconds)
