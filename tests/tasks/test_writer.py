"""Calls beside a study: nothing waits for them but its end, and what fails is tried once more."""

import threading
from collections.abc import Iterator

import pytest

from papa.tasks import writer as writing
from papa.tasks.writer import Writer


@pytest.fixture
def messages() -> list[str]:
    return []


@pytest.fixture
def writer(messages: list[str]) -> Writer:
    return Writer(messages.append)


def failing() -> None:
    raise ValueError("gone")


def test_a_failed_job_is_tried_again_at_the_end(writer: Writer, messages: list[str]) -> None:
    attempts = list[str]()
    called = list[str]()

    def fail_once() -> None:
        attempts.append("an attempt")
        if len(attempts) == 1:
            raise ValueError("gone")

    writer.start()
    writer.add(fail_once)
    writer.add(lambda: called.append("a later job"))
    assert writer.finish() == ""
    assert len(attempts) == 2
    assert called == ["a later job"]
    (sentence,) = messages
    assert "gone" in sentence


def test_a_job_that_fails_again_ends_the_writer(writer: Writer, messages: list[str]) -> None:
    attempts = list[str]()
    called = list[str]()

    def fail() -> None:
        attempts.append("an attempt")
        failing()

    writer.start()
    writer.add(fail)
    writer.add(lambda: called.append("a later job"))
    assert "gone" in writer.finish()
    assert len(attempts) == 2
    assert not called
    assert len(messages) == 1


@pytest.fixture
def stuck() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def test_the_end_waits_no_longer_than_jobs_end(
    writer: Writer, stuck: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "_PATIENCE_SECONDS", 0.01)
    writer.start()
    writer.add(stuck.wait)
    assert writer.finish() != ""
