"""An action that ends in time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

Found = TypeVar("Found")


def in_time(seconds: float, action: Callable[[], Found]) -> Found:
    """Run an action in a thread: not every wait of every filesystem has an end of its own.

    Raises:
        TimeoutError: it took longer; its thread is left behind.
    """
    done: Future[Found] = Future()

    def run() -> None:
        try:
            done.set_result(action())
        except Exception as error:
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    try:
        return done.result(seconds)
    except TimeoutError:
        raise TimeoutError(f"no answer within {seconds:g} seconds") from None
