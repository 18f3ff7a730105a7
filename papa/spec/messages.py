"""What a person reads of a refused study: where, what was found, and what to write instead; and
what is left of the study without that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from papa.errors import CheckError, Problem, SpecError, meant, shortened, shown
from papa.spec import (
    CodeSpec,
    Columns,
    ConstantsSpec,
    EncoderSpec,
    ExecutionSpec,
    FeaturesSpec,
    HeadScores,
    LayoutSpec,
    ProbeSpec,
    RankingSpec,
    StudySpec,
    TaskSpec,
    listed,
)

AS_THE_AUTHORS_RAN = "as_the_authors_ran"
"""The key of a study file that turns every switch of docs/fidelity.md to the authors' side."""
_EXAMPLES = {
    "name": "name: my-study",
    "encoders": "encoders: [google-bert/bert-base-uncased]",
    "tasks": "tasks: [cola]",
    "kind": "kind: average",
    "source": "source: {kind: files, train: train.jsonl, validation: validation.jsonl}",
    "columns": "columns: {text: sentence, label: label}",
    "metric": "metric: accuracy",
    "slots": "slots: 128",
    "probe": "probe: {learning_rate: 1.0e-4, batch_size: 16, epochs: 4}",
    "learning_rate": "learning_rate: 1.0e-4",
    "batch_size": "batch_size: 16",
    "epochs": "epochs: 4",
    "train": "train: train.jsonl",
    "validation": "validation: validation.jsonl",
}
"""What to paste where a key is missing."""
_EXPECTED = {
    "tuple_type": "a list, such as [1, 2]",
    "string_type": "text",
    "string_too_long": "{max_length} characters or fewer",
    "string_too_short": "text that is not empty",
    "int_": "a whole number",
    "float_": "a number",
    "finite_number": "a finite number",
    "bool_": "true or false",
    "model_type": "keys with their values, such as {{name: …}}",
    "path_type": "the path of a file",
    "path_not_file": "the path of a file that is there",
    "greater_than_equal": "{ge} or more",
    "greater_than": "more than {gt}",
    "less_than_equal": "{le} or less",
    "less_than": "less than {lt}",
    "multiple_of": "an even number",
    "too_short": "{min_length} or more in it",
}
"""What is expected instead, by how pydantic calls the fault or how its name begins."""
_STAND_INS = {"name": "study", "slots": 4, "learning_rate": 1e-4, "batch_size": 1, "epochs": 1}
"""For what is wrong and has no default; the rest is looked at and never run."""
_QUOTED = re.compile("'([^']*)'")


def sentence(problem: ErrorDetails) -> str:
    """One of the things that the specification refused, as a sentence without the file's name."""
    steps = [
        shortened(str(step), 60)
        for step in problem["loc"]
        if step not in ("files", "hub", "embedded", "function-after")
    ]
    where = ".".join(steps) or "the study"
    context, value = problem.get("ctx", {}), problem.get("input")
    allowed = context.get("expected")
    match problem["type"]:
        case "extra_forbidden":
            model = _model_at(steps[:-1])
            extra = (AS_THE_AUTHORS_RAN,) if model is StudySpec else ()
            keys = (*model.model_fields, *extra) if model else ()
            known = f"{meant(steps[-1], keys)}: use one of {listed(keys)}" if keys else ""
            return f"unknown key '{where}'{known}"
        case "missing":
            example = _EXAMPLES.get(steps[-1])
            return f"'{where}' is missing: add it{f', such as: {example}' if example else ''}"
        case "literal_error":
            return (
                f"'{where}' is {shown(value)}{meant(value, _QUOTED.findall(str(allowed)))}: use "
                f"{allowed}"
            )
        case "union_tag_not_found" | "union_tag_invalid":
            given = value.get("kind") if isinstance(value, dict) else value
            kinds = context.get("expected_tags", "'files', 'hub', 'embedded'")
            return (
                f"'{where}.kind' is {shown(given)}{meant(given, _QUOTED.findall(kinds))}: use one "
                f"of {kinds}"
            )
        case "string_pattern_mismatch" if steps[-1] == "name":
            return (
                f"'{where}' is {shown(value)}: use letters, digits, '.', '_' and '-', such as "
                f"{_as_name(value)!r}"
            )
        case "value_error":
            found = "" if isinstance(value, dict) else f" (found {shown(value)})"
            return f"'{where}': {problem['msg'].removeprefix('Value error, ')}{found}"
        case kind:
            expected = next(
                (said for start, said in _EXPECTED.items() if kind.startswith(start)),
                "another value",
            )
            return f"'{where}' is {shown(value)}, expected {expected.format(**context)}: correct it"


def _as_name(value: Any) -> str:
    """The name nearest to a text that is none."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", str(value)[:60]).strip("-._") or "my-study"


def _model_at(steps: Sequence[str]) -> type[BaseModel] | None:
    models: dict[str, type[BaseModel]] = {
        "encoders": EncoderSpec,
        "tasks": TaskSpec,
        "constants": ConstantsSpec,
        "corpus": TaskSpec,
        "columns": Columns,
        "scores": HeadScores,
        "code": CodeSpec,
        "probe": ProbeSpec,
        "ranking": RankingSpec,
        "layout": LayoutSpec,
        "features": FeaturesSpec,
        "execution": ExecutionSpec,
    }
    named = [step for step in steps if not step.isdecimal()]
    return models.get(named[-1]) if named else StudySpec


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
            looked_up = last == ("name",) and fault["loc"][:-2] not in ((), ("tasks",))
            if fault["type"] == "missing" and last[0] in _STAND_INS and not looked_up:
                node[last[0]] = _STAND_INS[last[0]]
            elif path:
                holder, step = path[-1]
                del holder[step]
                if len(path) == 2 and isinstance(holder, list):
                    del self._indexes[path[0][1]][step]
            else:
                return None
