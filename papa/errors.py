"""The errors a user can mend, alone or several at once: each is one sentence that says what is
wrong, where, what was expected, what was found and what to do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from papa.credentials import without_credentials


class PapaError(Exception):
    """Base of every error that the user can mend.

    What it says holds no password or key of an address, and is printable, whatever it quotes.
    """

    says = "{}"

    def __init__(self, *told: object) -> None:
        # Here and not where messages are shown: Prefect, Ray and logs keep errors too.
        super().__init__(
            *(without_credentials(part) if isinstance(part, str) else part for part in told)
        )

    def __str__(self) -> str:
        return printable(self.says.format(*self.args))


class TransientError(PapaError):
    """What may pass by itself, so that trying again is worth it: a lost worker or service."""


class HubUnreachableError(TransientError):
    """The hub does not answer, and what is wanted of it is not on this machine: what, and why."""

    says = (
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
    """A stored artifact is damaged, or was made for something else."""


class DamagedError(ArtifactError):
    """A stored artifact is not what was stored, or is gone; making it again mends it."""

    says = "{}: delete {} and run again"

    def __init__(self, what: str, address: object) -> None:
        super().__init__(what, str(address))
        self.what, self.address = self.args


class NumbersError(PapaError):
    """NaN or infinity among numbers that were computed: where, from the inside out; and why."""

    says = "{} holds NaN or infinity: {}"


def printable(text: str) -> str:
    """The text with every character that is not printable as its escape."""
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text
    )


_CLASS = re.compile(r"<class '([\w.]+)'>")


def in_one_line(error: Exception) -> str:
    """What a library or the system said, in short."""
    said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    if type(error).__module__.startswith("pydantic") and hasattr(error, "errors"):
        said = "; ".join(": ".join(map(str, (*of["loc"], of["msg"]))) for of in error.errors())
    return shortened(_CLASS.sub(r"\1", " ".join(said.split())) or type(error).__name__, 300)


def in_short(error: BaseException) -> str:
    """The kind of an error that no message explains, and the last line of what it says."""
    lines = without_credentials(str(error)).strip().splitlines()
    return printable(f"{type(error).__name__}: {lines[-1] if lines else 'no message'}")


def shortened(said: object, most: int = 200) -> str:
    """What is said, or its start and an ellipsis: ``most`` characters."""
    text = str(said)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def joined(names: Iterable[str]) -> str:
    """Names as a message lists them, the first of them where they are many."""
    return shortened(", ".join(names), 300)


def shown(value: object) -> str:
    """A given value as a message quotes it: as much as tells which one it is."""
    return shortened(repr(value))


def nearest_first(wanted: str, existing: Iterable[str], most: int = 12) -> str:
    """The existing names as a message lists them, nearest to ``wanted`` first; "none" for none."""
    names = [*existing]
    more = f" and {len(names) - most} more" if len(names) > most else ""
    near = get_close_matches(wanted, names, most, cutoff=0)
    return (", ".join(shortened(name, 60) for name in near) or "none") + more


def meant(wanted: object, existing: Iterable[str]) -> str:
    """`` (did you mean 'x'?)`` where a name is near to an existing one, else nothing."""
    names = {name.lower(): name for name in existing}
    near = get_close_matches(str(wanted).lower(), names, n=1) if isinstance(wanted, str) else ()
    return f" (did you mean '{names[near[0]]}'?)" if near else ""


@dataclass(frozen=True)
class Problem:
    """One thing that keeps a study from running, by the study's key: ``tasks.1 (mrpc)``, say."""

    where: str
    error: PapaError

    def __str__(self) -> str:
        return f"{self.where}: {self.error}"


def problems_of(where: str, check: Callable[[], object]) -> list[Problem]:
    """What a check finds wrong, if anything."""
    try:
        check()
    except PapaError as error:
        return [Problem(where, error)]
    return []


def missing_from(unreached: Sequence[HubUnreachableError]) -> str:
    """What the hub did not give, and why."""
    wanted = ", ".join(dict.fromkeys(error.args[0] for error in unreached))
    return (
        f"the hub cannot be reached ({unreached[0].args[1]}), and this machine does not have: "
        f"{wanted}"
    )


class CheckError(SpecError):
    """A study cannot run as it is, for several reasons; a silent hub is one, whatever was asked."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        silent = [one.error for one in problems if isinstance(one.error, HubUnreachableError)]
        lines = [*map(str, problems)]
        if len(silent) > 1:
            lines = [str(one) for one in problems if one.error not in silent]
            mend = "check the network, or give local files and folders"
            lines.append(f"hub: {missing_from(silent)}: {mend}")
        if len(lines) > 1:
            lines.insert(0, f"{len(lines)} problems keep this study from running:")
        super().__init__("\n  ".join(lines))

    def __str__(self) -> str:
        return "\n".join(map(printable, self.args[0].split("\n")))
