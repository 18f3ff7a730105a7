"""A study that the specification refuses: all that is wrong, and what is left without that."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from pydantic import ValidationError

from papa.errors import CheckError, Problem, SpecError
from papa.spec import StudySpec

_STAND_INS = {"name": "study", "slots": 4, "learning_rate": 1e-4, "batch_size": 1, "epochs": 1}
"""For what is wrong and has no default; the rest is looked at and never run."""


class MalformedError(CheckError, SpecError):
    """A study's file has unknown keys or impossible values.

    Attributes:
        rest: the study without them, so that what it names can be looked at as well; None where no
            encoder or no task is left.
    """

    def __init__(self, problems: Sequence[Problem], document: Mapping[Any, Any]) -> None:
        super().__init__(problems)
        self._indexes = {
            key: [*range(len(value))] for key, value in document.items() if isinstance(value, list)
        }
        self.rest = self._without_faults(deepcopy(dict(document)))

    def in_file(self, problem: Problem) -> Problem:
        """A problem of the rest, at its place in the file."""

        def moved(found: re.Match[str]) -> str:
            return f"{found[1]}.{self._indexes[found[1]][int(found[2])]}"

        return Problem(
            re.sub(r"^(encoders|tasks|constants)\.(\d+)", moved, problem.where), problem.error
        )

    def _without_faults(self, rest: dict[Any, Any]) -> StudySpec | None:
        while True:
            try:
                return StudySpec.model_validate(rest)
            except ValidationError as error:
                # One at a time, as an entry that is removed moves those behind it; the deepest
                # takes least with it.
                fault = max(error.errors(), key=lambda problem: len(problem["loc"]))
            node: Any = rest
            path: list[tuple[Any, Any]] = []
            for step in fault["loc"]:
                if (
                    step in node
                    if isinstance(node, dict)
                    else isinstance(node, list) and isinstance(step, int)
                ):
                    path.append((node, step))
                    node = node[path[-1][1]]
            last = fault["loc"][-1:]
            if fault["type"] == "missing" and last[0] in _STAND_INS:
                node[last[0]] = _STAND_INS[last[0]]
            elif path:
                holder, step = path[-1]
                del holder[step]
                if len(path) == 2 and isinstance(holder, list):
                    del self._indexes[path[0][1]][step]
            else:
                return None
