"""What a person reads of a study that the specification refuses: where, what was found, and what to write instead."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from papa.errors import meant, shortened, shown
from papa.spec import (
    Columns,
    ConstantsSpec,
    EncoderSpec,
    ExecutionSpec,
    FeaturesSpec,
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
_QUOTED = re.compile("'([^']*)'")


def first_problem(error: ValidationError, origin: str) -> str:
    """One sentence on the first problem.

    Args:
        error: what the specification refused.
        origin: what the message begins with: the study's file.
    """
    problem = error.errors(include_url=False)[0]
    steps = [
        shortened(str(step), 60)
        for step in problem["loc"]
        if step not in ("files", "hub", "embedded", "function-after")
    ]
    where = ".".join(steps) or "the study"
    allowed = problem.get("ctx", {}).get("expected")
    value = problem.get("input")
    match problem["type"]:
        case "extra_forbidden":
            model = _model_at(steps[:-1])
            extra = (AS_THE_AUTHORS_RAN,) if model is StudySpec else ()
            keys = (*model.model_fields, *extra) if model else ()
            known = f"{meant(steps[-1], keys)}: use one of {listed(keys)}" if keys else ""
            return f"{origin}: unknown key '{where}'{known}"
        case "missing":
            example = _EXAMPLES.get(steps[-1])
            return f"{origin}: '{where}' is missing: add it{f', such as: {example}' if example else ''}"
        case "literal_error":
            return f"{origin}: '{where}' is {shown(value)}{meant(value, _QUOTED.findall(str(allowed)))}: use {allowed}"
        case "union_tag_not_found" | "union_tag_invalid":
            given = value.get("kind") if isinstance(value, dict) else value
            kinds = problem["ctx"].get("expected_tags", "'files', 'hub', 'embedded'")
            return (
                f"{origin}: '{where}.kind' is {shown(given)}{meant(given, _QUOTED.findall(kinds))}: use one of {kinds}"
            )
        case "string_pattern_mismatch" if steps[-1] == "name":
            return (
                f"{origin}: '{where}' is {shown(value)}: use letters, digits, '.', '_' and '-', such as "
                f"{_as_name(value)!r}"
            )
        case "path_type":
            return f"{origin}: '{where}' is {shown(value)}, expected the path of a file: correct it"
        case _:
            found = "" if isinstance(value, dict) else f" (found {shown(value)})"
            return f"{origin}: '{where}': {problem['msg'].removeprefix('Value error, ')}{found}"


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
        "probe": ProbeSpec,
        "ranking": RankingSpec,
        "layout": LayoutSpec,
        "features": FeaturesSpec,
        "execution": ExecutionSpec,
    }
    named = [step for step in steps if not step.isdecimal()]
    return models.get(named[-1]) if named else StudySpec
