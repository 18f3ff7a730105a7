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
_ENDING_SECONDS, _DEATH_SECONDS = 2.0, 1.0


class Interruption:
    """Inside its block SIGINT and SIGTERM end the process, with exit code 130 or 143; a second one
    ends it at once.

    Python calls a signal's handler in the main thread, between two of its instructions, and Prefect
    replaces the handler of SIGTERM. So a thread of its own reads the signal's number from Python's
    wakeup pipe.

    ``kept`` says what is kept; ``endings`` are called first, for two seconds at most.
    """

    def __init__(self) -> None:
        self.kept: Callable[[], str] = lambda: ""
        self.endings: list[Callable[[], object]] = []
        self._ending = False

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
        if self._ending:
            # What fails now fails because processes are being killed.
            threading.Event().wait()
        signal.set_wakeup_fd(self._wakeup)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self._writer)

    def fail(self, why: str) -> None:
        """End everything, from any thread, with exit code 1."""
        if not self._ending:
            self._ending = True
            self._end(f"error: {why} ({self.kept()})", 1)

    def _watch(self, reader: int) -> None:
        with open(reader, "rb", buffering=0) as pipe:
            while number := pipe.read(1):
                if number[0] not in self._before:
                    continue
                if self._ending:
                    self._kill(128 + number[0])
                self._ending = True
                command = without_credentials(shlex.join(["papa", *sys.argv[1:]]))
                kept = f"{text}; " if (text := self.kept()) else ""
                why = f"interrupted, ending (once more: at once): {kept}to go on run: {command}"
                given = why, 128 + number[0]
                threading.Thread(target=self._end, args=given, daemon=True).start()

    def _end(self, sentence: str, code: int) -> None:
        # A bar that was cut off leaves its line, and the cursor hidden.
        clear = "\r\x1b[2K\x1b[?25h" if os.isatty(2) else ""
        with suppress(OSError):
            os.write(2, f"{clear}{sentence}\n".encode())
            # Bars go on, and engines complain of processes that are gone.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        calls = threading.Thread(target=self._call, daemon=True)
        calls.start()
        calls.join(_ENDING_SECONDS)
        self._kill(code)

    def _call(self) -> None:
        for ending in self.endings:
            with suppress(Exception):
                ending()

    def _kill(self, code: int) -> None:
        with suppress(psutil.Error):
            end_descendants()
        os._exit(code)


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
