"""Everything that is wrong with a study, told together: one sentence each, with the place in the study."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from papa.errors import HubUnreachableError, PapaError


@dataclass(frozen=True)
class Problem:
    """One thing that keeps a study from running.

    Attributes:
        where: the study's key, such as ``tasks.1 (mrpc)``.
        error: what is wrong.
    """

    where: str
    error: PapaError

    def __str__(self) -> str:
        return f"{self.where}: {self.error}"


class CheckError(PapaError):
    """A study cannot run as it is.

    Attributes:
        problems: all that was found, a sentence each.
    """

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = _told(problems)
        several = f"{len(self.problems)} problems keep this study from running:"
        super().__init__(self.problems[0] if len(self.problems) == 1 else "\n  ".join((several, *self.problems)))


def unreachable(problems: Sequence[Problem]) -> list[HubUnreachableError]:
    """Those of them that are the hub's silence."""
    return [problem.error for problem in problems if isinstance(problem.error, HubUnreachableError)]


def missing_from(silent: Sequence[HubUnreachableError]) -> str:
    """What the hub was asked for in vain, and why."""
    wanted = ", ".join(dict.fromkeys(error.what for error in silent))
    return f"the hub cannot be reached ({silent[0].reason}), and this machine does not have: {wanted}"


def _told(problems: Sequence[Problem]) -> tuple[str, ...]:
    """The sentences; a hub that does not answer is one problem, whatever it was asked for."""
    silent = unreachable(problems)
    others = [str(problem) for problem in problems if problem.error not in silent]
    if len(silent) < 2:
        return tuple(map(str, problems))
    return (*others, f"hub: {missing_from(silent)}: check the network, or give local files and folders")
