"""Calls beside a study: nothing waits for them but its end, and what fails is tried once more."""

import threading
from collections.abc import Iterator

import pytest

from papa.tasks import background_calls
from papa.tasks.background_calls import BackgroundCalls


@pytest.fixture
def messages() -> list[str]:
    return []


@pytest.fixture
def calls(messages: list[str]) -> BackgroundCalls:
    return BackgroundCalls(messages.append)


def failing() -> None:
    raise ValueError("gone")


def test_a_failed_job_is_tried_again_at_the_end(
    calls: BackgroundCalls, messages: list[str]
) -> None:
    attempts = list[str]()
    called = list[str]()

    def fail_once() -> None:
        attempts.append("an attempt")
        if len(attempts) == 1:
            raise ValueError("gone")

    calls.start()
    calls.add(fail_once)
    calls.add(lambda: called.append("a later job"))
    assert calls.finish() == ""
    assert len(attempts) == 2
    assert called == ["a later job"]
    (sentence,) = messages
    assert "gone" in sentence


def test_a_job_that_fails_again_is_the_last(calls: BackgroundCalls, messages: list[str]) -> None:
    attempts = list[str]()
    called = list[str]()

    def fail() -> None:
        attempts.append("an attempt")
        failing()

    calls.start()
    calls.add(fail)
    calls.add(lambda: called.append("a later job"))
    assert "gone" in calls.finish()
    assert len(attempts) == 2
    assert not called
    assert len(messages) == 1


@pytest.fixture
def stuck() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


@pytest.mark.parametrize("limit", ["_CALL_TIMEOUT_SECONDS", "_FINISH_TIMEOUT_SECONDS"])
def test_the_end_does_not_wait_for_a_job_that_is_stuck(
    calls: BackgroundCalls, stuck: threading.Event, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(background_calls, limit, 0.01)
    calls.start()
    calls.add(stuck.wait)
    assert calls.finish() != ""
