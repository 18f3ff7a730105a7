"""What is wrong with a study's mapping: pydantic's errors as sentences, and what can be checked in
spite of them.
"""

import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import getitem
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from papa.errors import CheckError, Problem, meant, shown
from papa.spec.study import AS_THE_AUTHORS_RAN, StudySpec
from papa.spec.task import NAME_CHARACTERS, Frozen


@dataclass(frozen=True)
class CheckablePart:
    """A study without the keys, and without the entries of lists, that have faults: what it names
    can still be checked.

    Attributes:
        study: The study.
        positions: For each list, the position in the file of each of its entries.
    """

    study: StudySpec
    positions: Mapping[str, Sequence[int]]

    def in_file(self, problem: Problem) -> Problem:
        """Return a problem of ``study`` with its position in the file."""
        match = re.match(r"(\w+)\.(\d+)", problem.where)
        if match is None:
            return problem
        position = self.positions[match[1]][int(match[2])]
        return replace(problem, where=f"{match[1]}.{position}{problem.where[match.end() :]}")


class StudyFileError(CheckError):
    """A study's keys or values are wrong.

    Attributes:
        problems: What is wrong.
        checkable: The study without these; None if what is left is no study.
    """

    def __init__(self, problems: Sequence[Problem], checkable: CheckablePart | None) -> None:
        super().__init__(problems)
        self.problems = problems
        self.checkable = checkable


@dataclass(frozen=True)
class Fault:
    """What is wrong with the value at a path of a study's mapping.

    Attributes:
        path: The keys and indices that lead to the value.
        sentence: What is wrong, and what to do.
        is_unknown: Whether no study has such a key.
    """

    path: tuple[Any, ...]
    sentence: str
    is_unknown: bool = False


_MESSAGES = {
    "missing": "it is missing: add it",
    "tuple_type": "expected a list",
    "too_short": "expected a list of one or more",
    "model_type": "expected a mapping of keys to values",
    "model_attributes_type": "expected a mapping of keys to values",
    "union_tag_not_found": "its key kind is missing: add kind: files, hub or embedded",
    "path_type": "expected a path",
    "path_not_file": "there is no such file: correct the path",
    "string_pattern_mismatch": NAME_CHARACTERS,
}
"""Messages in words of YAML, by pydantic's type of error; its own name types of Python."""


_RENAMED = {
    "constants": "substitutes",
    "fractions": "keep",
    "seeds": "probe_seeds",
    "ranking.seeds": "ranking_seeds",
    "tasks.own_probe": "custom_probe",
}
"""Today's names of keys, by the earlier positions without indices."""


def validated(document: Mapping[str, object]) -> tuple[StudySpec | None, list[Fault]]:
    """Return the study that a mapping describes, or all faults of the mapping."""
    try:
        return StudySpec.model_validate(document), []
    except ValidationError as error:
        return None, [
            Fault(_path_of(detail), line, detail["type"] == "extra_forbidden")
            for detail in error.errors()
            if not _follows_from_another(detail)
            for line in sentence(detail).split("\n")
        ]


def without_faults(document: Mapping[str, object], faults: Sequence[Fault]) -> CheckablePart | None:
    """Return a study without what has faults, or None if what is left is no study."""
    remaining: Any = copy.deepcopy(document)
    dropped: set[tuple[Any, ...]] = set()
    for fault in faults:
        key, *inner = fault.path
        *parents, last = fault.path
        if fault.is_unknown:
            del reduce(getitem, parents, remaining)[last]
        else:
            is_entry = bool(inner) and isinstance(remaining.get(key), list)
            dropped.add(fault.path[: 2 if is_entry else 1])
    kept = {key: value for key, value in remaining.items() if (key,) not in dropped}
    positions = {
        key: [index for index in range(len(entries)) if (key, index) not in dropped]
        for key, entries in kept.items()
        if isinstance(entries, list)
    }
    lists = {key: [kept[key][index] for index in indices] for key, indices in positions.items()}
    # Nothing that is checked follows from the name.
    study, _ = validated({"name": "study", **kept, **lists})
    return CheckablePart(study, positions) if study else None


def _follows_from_another(fault: ErrorDetails) -> bool:
    """Return whether pydantic names a fault only because of another: a list all of whose entries
    are wrong is too short as well, and defaults that depend on wrong keys are unknown.
    """
    is_emptied = fault["type"] == "too_short" and bool(fault["input"])
    return is_emptied or fault["type"] == "default_factory_not_called"


def sentence(fault: ErrorDetails) -> str:
    """Return what pydantic refused: the key, what is expected there, what was found, and the name
    that is nearest to it; a line for each of our own reasons.
    """
    steps = [*map(str, _path_of(fault))]
    where = ".".join(steps) or "the study"
    value = fault["input"]
    if fault["type"] == "extra_forbidden":
        today = _RENAMED.get(re.sub(r"\.\d+", "", where))
        if today:
            return f"'{where}' is now called '{today}': rename it (see CHANGELOG.md)"
        models = [StudySpec] if len(steps) == 1 else Frozen.__subclasses__()
        keys = {key for model in models for key in model.model_fields}
        near = meant(steps[-1], {*keys, AS_THE_AUTHORS_RAN} - {steps[-1]})  # Known elsewhere.
        return f"unknown key '{where}'{near}: correct it, or leave it out"
    names = _names_in(fault)
    has_kind = isinstance(value, dict) and "tag" in fault["type"]
    wrong_value = value.get("kind") if has_kind else value
    # A mapping would be long to quote, and of a missing key there is no value.
    is_quoted = fault["type"] != "missing" and not isinstance(wrong_value, dict)
    quoted = f", found {shown(wrong_value)}" if is_quoted else ""
    message = _MESSAGES.get(fault["type"], fault["msg"].removeprefix("Value error, "))
    return "\n".join(
        f"'{where}': {line}{quoted}{meant(wrong_value, names)}" for line in message.split("\n")
    )


def _names_in(fault: ErrorDetails) -> list[str]:
    """Return the values that pydantic names, and what stands between them."""
    context = fault.get("ctx", {})
    return str(context.get("expected") or context.get("expected_tags", "")).split("'")


def _path_of(fault: ErrorDetails) -> tuple[int | str, ...]:
    """Return the keys and indices that lead to a fault, without the kinds that pydantic names."""
    return tuple(step for step in fault["loc"] if step not in ("files", "hub", "embedded"))
