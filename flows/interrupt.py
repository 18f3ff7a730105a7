"""Ctrl-C, SIGTERM and SIGHUP: a sentence at once, then all that the command started ends within
seconds. Nothing unwinds, which takes threads minutes: a run can go on from what a killed process
leaves.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import NoReturn

import psutil

from papa.credentials import without_credentials
from papa.temporary import remove_own_folders

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_HOLDER = "papa.ray_node"
_CALLS_SECONDS = 2.0
_DEATH_SECONDS = 1.0


class Interruption:
    """Inside its block SIGINT, SIGTERM and SIGHUP end the process, with exit code 128 and the
    signal's number; a second one ends it at once. ``saved`` says what is kept;
    ``on_interrupt`` are called first, for two seconds in all.
    """

    def __init__(self) -> None:
        self.saved: Callable[[], str] = lambda: ""
        self.on_interrupt: list[Callable[[], object]] = []
        self._ending = False
        self._lock = threading.Lock()

    def __enter__(self) -> Interruption:
        # What nohup or a shell's background job ignores stays ignored.
        self._before = {
            number: signal.signal(number, lambda *_: None)
            for number in _SIGNALS
            if signal.getsignal(number) != signal.SIG_IGN
        }
        # A thread reads the signal's number from Python's wakeup pipe: handlers wait for the main
        # thread, and Prefect replaces that of SIGTERM.
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
        if self._begins_to_end():
            self._end(f"error: {why} ({self.saved()})", 1)

    def _begins_to_end(self) -> bool:
        """Return whether this call is the first one, of any thread."""
        with self._lock:
            is_first = not self._ending
            self._ending = True
            return is_first

    def _watch(self, reader: int) -> None:
        """End the process at the first signal that the pipe names, at once at the second."""
        with open(reader, "rb", buffering=0) as pipe:
            for number in iter(partial(pipe.read, 1), b""):
                if number[0] not in self._before:
                    continue
                code = 128 + number[0]
                if not self._begins_to_end():
                    _kill(code)
                command = without_credentials(shlex.join(["papa", *sys.argv[1:]]))
                saved = self.saved()
                saved = f"{saved}; " if saved else ""
                why = f"interrupted, ending (once more: at once): {saved}to go on run: {command}"
                threading.Thread(target=self._end, args=(why, code), daemon=True).start()

    def _end(self, sentence: str, code: int) -> None:
        # A bar that was cut off leaves its line, and the cursor hidden.
        clear = "\r\x1b[2K\x1b[?25h" if os.isatty(2) else ""
        with suppress(OSError):
            os.write(2, f"{clear}{sentence}\n".encode())
            # Bars go on, and engines complain of processes that are gone.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)

        def call() -> None:
            for function in self.on_interrupt:
                with suppress(Exception):
                    function()

        calls = threading.Thread(target=call, daemon=True)
        calls.start()
        calls.join(_CALLS_SECONDS)
        _kill(code)


def _kill(code: int) -> NoReturn:
    """End this process and every one below it, and remove its temporary folders."""
    try:
        _kill_others()
        remove_own_folders()
    finally:
        os._exit(code)


def _kill_others() -> None:
    """End every process below this one; Ray's own last."""
    this = psutil.Process()
    # What stands still starts no further process, and does not end because another did. Ray's
    # holder goes on, and ends the rest if this process dies before.
    for child in this.children(recursive=True):
        with suppress(psutil.Error):
            if _HOLDER not in child.cmdline():
                child.suspend()
    first: list[psutil.Process] = []
    last: list[psutil.Process] = []
    for process in this.children(recursive=True):
        with suppress(psutil.Error):
            # Threads of Ray's in this process abort it when they miss these.
            # Its holder and what started them, too: they end with those.
            rays = process.name() in ("raylet", "gcs_server") or _HOLDER in process.cmdline()
            (last if rays else first).append(process)
    for processes in (first, last):
        for process in processes:
            with suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(processes, timeout=_DEATH_SECONDS)
