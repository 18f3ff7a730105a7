"""Errors that the user can correct, one or several at once: each message says what is wrong, where,
what was expected, what was found and what to do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TypeVar

from papa.credentials import without_credentials


class PapaError(Exception):
    """Base of all errors that the user can correct.

    Its message holds no password or key of an address, and is printable, whatever it quotes.
    Arguments are the fields of ``message_format``, or without one a sentence for each problem.

    Attributes:
        step: The step of a study that the error ended; empty outside of a study.
        kept: What is kept of that study.
    """

    message_format = ""
    step = ""
    kept = ""

    def __init__(self, *fields: object) -> None:
        # Here and not where messages are shown: Prefect, Ray and logs keep errors too.
        super().__init__(
            *(without_credentials(field) if isinstance(field, str) else field for field in fields)
        )

    @property
    def reasons(self) -> tuple[str, ...]:
        """A printable sentence for each problem."""
        if self.message_format:
            return (printable(self.message_format.format(*self.args)),)
        return tuple(printable(str(reason)) for reason in self.args)

    def __str__(self) -> str:
        message = "\n".join(self.reasons)
        if self.step:
            return f"{printable(self.step)} failed: {message} ({printable(self.kept)})"
        return message


class TransientError(PapaError):
    """A failure that may pass by itself, such as a lost worker or service: a retry may succeed."""


class HubUnreachableError(TransientError):
    """The hub does not answer, and this machine lacks a file: which one, and why."""

    message_format = (
        "{} is not on this machine and the hub cannot be reached ({}): check the network, or give "
        "local files"
    )


class SpecError(PapaError):
    """The study's specification is missing, malformed or impossible."""


class DataError(PapaError):
    """A corpus is missing, empty, or a row does not fit its task."""


class EncoderError(PapaError):
    """An encoder or its tokenizer is missing, unsupported or unfit for the layout."""


class ArtifactError(PapaError):
    """A stored artifact is damaged, or was computed for something else."""


class DamagedError(ArtifactError):
    """A stored artifact was changed or deleted; computing it again repairs it."""

    message_format = "{}: delete {} and run again"

    def __init__(self, problem: str, address: object) -> None:
        super().__init__(problem, str(address))
        self.problem, self.address = self.args


class NumbersError(PapaError):
    """NaN or infinity among computed numbers: where, from the inside out; and why."""

    message_format = "{} holds NaN or infinity: {}"


def printable(text: str) -> str:
    """Return the text with every character that is not printable as its escape."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


_CLASS = re.compile(r"<class '([\w.]+)'>")


def in_one_line(error: Exception) -> str:
    """Return the message of a library or the system, in one line of 300 characters at most."""
    message = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    if type(error).__module__.startswith("pydantic") and hasattr(error, "errors"):
        message = "; ".join(
            ": ".join(map(str, (*problem["loc"], problem["msg"]))) for problem in error.errors()
        )
    return shortened(_CLASS.sub(r"\1", " ".join(message.split())) or type(error).__name__, 300)


def in_short(error: BaseException) -> str:
    """Return the class of an error that no message explains, and the last line of its message."""
    lines = without_credentials(str(error)).strip().splitlines()
    return printable(f"{type(error).__name__}: {lines[-1] if lines else 'no message'}")


def shortened(value: object, limit: int = 200) -> str:
    """Return the text of a value, cut with an ellipsis to at most ``limit`` characters."""
    text = str(value)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def joined(names: Iterable[str]) -> str:
    """Return names as a message lists them, whole, and the first of them if they are many."""
    text = ", ".join(names)
    return text if len(text) <= 300 else f"{text[:298].rpartition(', ')[0] or text[:298]}, …"


def shown(value: object) -> str:
    """Return a value as a message quotes it, shortened."""
    return shortened(repr(value))


def nearest_first(wanted: str, existing: Iterable[str]) -> str:
    """Return the existing names as ``joined`` lists them, nearest to ``wanted`` first; "none" for
    none.
    """
    names = [*existing]
    return joined(get_close_matches(wanted, names, len(names) or 1, cutoff=0)) or "none"


def meant(wanted: object, existing: Iterable[str]) -> str:
    """Return `` (did you mean 'x'?)`` if an existing name resembles a name, or else contains it;
    else an empty text.
    """
    if not isinstance(wanted, str):
        return ""
    names = {name.lower(): name for name in existing}
    nearest = get_close_matches(wanted.lower(), names, n=1)
    if len(wanted) > 2:
        nearest += sorted((name for name in names if wanted.lower() in name), key=len)
    return f" (did you mean '{names[nearest[0]]}'?)" if nearest else ""


Result = TypeVar("Result")


@dataclass(frozen=True)
class Problem:
    """A reason why a study cannot run, with the study's key, such as ``tasks.1 (mrpc)``."""

    where: str
    error: PapaError


def problems_of(where: str, check: Callable[[], object]) -> list[Problem]:
    """Return the problem that a check finds, as a list, which is empty without one."""
    try:
        check()
    except PapaError as error:
        return [Problem(where, error)]
    return []


def results_of_all(*checks: Callable[[], Result]) -> list[Result]:
    """Return what each check returns; raise a DataError with the problems that all of them find."""
    results: list[Result] = []
    reasons: list[str] = []
    for check in checks:
        try:
            results.append(check())
        except DataError as error:
            reasons += error.reasons
    if reasons:
        raise DataError(*dict.fromkeys(reasons))
    return results


class CheckError(SpecError):
    """A study cannot run as it is, with all reasons; each once, however many keys it is about."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        keys_by_reason: dict[str, dict[str, None]] = {}
        for problem in problems:
            for reason in problem.error.reasons:
                keys_by_reason.setdefault(reason, {})[problem.where] = None
        super().__init__(*(f"{', '.join(keys)}: {why}" for why, keys in keys_by_reason.items()))

    def __str__(self) -> str:
        heading = f"{len(self.args)} problems keep this study from running:"
        return "\n  ".join([heading, *self.reasons] if len(self.args) > 1 else self.reasons)
