"""The references of the study file and of results, as Markdown, from the specification itself.

A key without a description, or without an example in ``every_key.yaml``, is an error.
"""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import yaml
from pydantic import BaseModel

from papa.spec import (
    CodeSpec,
    Columns,
    EmbeddedSource,
    EncoderSpec,
    ExecutionSpec,
    ExternalScores,
    FeaturesSpec,
    FilesSource,
    HubSource,
    LayoutSpec,
    ProbeSpec,
    RankingSpec,
    StudySpec,
    SubstituteKind,
    SubstituteSpec,
    TaskSpec,
)
from papa.spec.study import AS_THE_AUTHORS_RAN
from papa.spec.substitutes import SUBSTITUTES
from papa.spec.task import KINDS

EXAMPLES = Path(__file__).with_name("every_key.yaml")
MEANINGS: dict[str, dict[str, str]] = yaml.safe_load(
    Path(__file__).with_name("columns.yaml").read_text()
)
"""What the columns of each table are, and the metrics."""
_CELLS = "a row for every cell{}; cells that share a result have rows of their own"
_ROWS = {
    "results.parquet": _CELLS.format(" and seed"),
    "summary.csv": _CELLS.format(", over seeds"),
    "orders.csv": (
        "a row for every two head orders and each fraction, and one for their mean scores"
    ),
    "order_scores.csv": "a row for every head order of a study with two or more",
    "heads.parquet": "a row for every head and method",
    "joint_effects.csv": (
        "a row for every number of constant heads, and for every pair of the 16 heads of least "
        "effect, of native heads with the order `effect`"
    ),
}
SECTIONS: dict[str, type[BaseModel]] = {
    "The study": StudySpec,
    "An encoder": EncoderSpec,
    "A task": TaskSpec,
    "Source: files": FilesSource,
    "Source: hub": HubSource,
    "Source: embedded": EmbeddedSource,
    "Columns": Columns,
    "The probe": ProbeSpec,
    "Constant matrices": SubstituteSpec,
    "Head scores": ExternalScores,
    "Code": CodeSpec,
    "Ranking": RankingSpec,
    "Layout": LayoutSpec,
    "Features": FeaturesSpec,
    "Execution": ExecutionSpec,
}
_HEAD = """# Study file

Look up every key of a study: its meaning, type, default and an example.
`papa init` writes a short file to start from; `papa check` reports all problems of a file.

**`--set`** overrides any value from the command line, with the paths and YAML values of the column
*Example*.
Entries of lists go by their index from 0:
`papa run study.yaml --set tasks.0.slots=64 --set 'probe_seeds=[0, 1]'`.
A bare name in `encoders`, `tasks` or `substitutes` stands for an entry with that name or kind.
Paths are relative to the file's folder.
"""
_LONG = 100
"""Characters of an example; the keys below a longer one have examples of their own."""
_LARGE = 2**31
"""Limits from here on are those of the machine's numbers."""
_AUTHORS = (
    "true starts every switch of [fidelity](../fidelity.md) on the authors' side; "
    "what the study says itself still wins."
)


def study_page() -> str:
    """The page on the study file, as Markdown."""
    found = examples(StudySpec, yaml.safe_load(EXAMPLES.read_text()))
    lines = [_HEAD, *(line for title in SECTIONS for line in _section(title, found))]
    return "\n".join(lines).rstrip() + "\n"


def _section(
    title: str, found: Mapping[tuple[type[BaseModel], str], tuple[str, Any]]
) -> Iterator[str]:
    model = SECTIONS[title]
    yield f"## {title}\n\n{_prose(inspect.getdoc(model) or '')}\n"
    yield "| Key | Meaning | Type | Default | Example |\n| --- | --- | --- | --- | --- |"
    hints = get_type_hints(model, include_extras=True)
    for name, field in model.model_fields.items():
        default = "required"
        if field.default_factory is not None:
            default = "by other keys"
        elif not field.is_required():
            default = f"`{_yaml(plain(field.get_default()))}`"
        path, value = found[model, name]
        written = _yaml(value)
        example = (
            f"`{path}={written}`"
            if len(written) <= _LONG
            else f"`{path}.{'0.' * isinstance(value, list)}…`"
        )
        meaning = _prose(description(model, name))
        yield _row(
            f"`{name}`", meaning, _type(hints[name]), default.replace("`{}`", "see there"), example
        )
    if model is StudySpec:
        yield _row(
            f"`{AS_THE_AUTHORS_RAN}`",
            _AUTHORS,
            "true or false",
            "`false`",
            f"`{AS_THE_AUTHORS_RAN}=true`",
        )
    yield ""


def description(model: type[BaseModel], name: str) -> str:
    """What a key means: the string below its field, or what the part of the specification that it
    holds says.

    Raises:
        LookupError: neither says anything.
    """
    field = model.model_fields[name]
    inner = _models(field.annotation)
    said = field.description or (inspect.getdoc(inner[0]) if inner else None)
    if not said:
        raise LookupError(
            f"{model.__name__}.{name} has no description: write a string below the field"
        )
    return said


def examples(
    model: type[BaseModel], document: Any
) -> dict[tuple[type[BaseModel], str], tuple[str, Any]]:
    """Of every key its path, as ``--set`` takes it, and its value in a document.

    Raises:
        LookupError: the document lacks a key.
    """
    found: dict[tuple[type[BaseModel], str], tuple[str, Any]] = {}
    _collect(model, document, "", found)
    for part in SECTIONS.values():
        for name in part.model_fields:
            if (part, name) not in found:
                raise LookupError(
                    f"{part.__name__}.{name} has no example: give it a value in {EXAMPLES.name}"
                )
    return found


def _collect(
    model: type[BaseModel], value: Any, path: str, found: dict[Any, tuple[str, Any]]
) -> None:
    for name, field in model.model_fields.items():
        if name not in value:
            continue
        place = f"{path}{name}"
        found.setdefault((model, name), (place, value[name]))
        entries = value[name] if isinstance(value[name], list) else [value[name]]
        for number, entry in enumerate(entries):
            if isinstance(entry, dict):
                inner = f"{place}.{number}." if isinstance(value[name], list) else f"{place}."
                _collect(_model_of_entry(_models(field.annotation), entry), entry, inner, found)


def _model_of_entry(models: list[type[BaseModel]], entry: Mapping[str, Any]) -> type[BaseModel]:
    """The model of an entry; among sources the one of its kind."""
    if len(models) == 1:
        return models[0]
    return next(
        one for one in models if get_args(one.model_fields["kind"].annotation) == (entry["kind"],)
    )


def _models(annotation: Any) -> list[type[BaseModel]]:
    """The models in a type."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models(part)]


def _type(annotation: Any) -> str:
    """A type in words."""
    if annotation == SubstituteKind:
        return _names(SUBSTITUTES)
    origin, inside = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        limits = [limit for one in inside[1:] for limit in _limits(one)]
        return f"{_type(inside[0])}{', ' if limits else ''}{', '.join(limits)}"
    if origin is Literal:
        return _names(inside)
    if origin is tuple:
        return f"list of {_type(inside[0])}"
    if origin in (Union, types.UnionType):
        models = _models(annotation)
        return _linked(models) if len(models) > 1 else " or ".join(map(_type, inside))
    if models := _models(annotation):
        return _linked(models)
    return {
        bool: "true or false",
        str: "text",
        int: "whole number",
        float: "number",
        type(None): "null",
    }.get(annotation, "path")


def _limits(one: Any) -> Iterator[str]:
    for attribute, words in {
        "gt": "above",
        "ge": "at least",
        "lt": "below",
        "le": "at most",
    }.items():
        if (limit := getattr(one, attribute, None)) is not None and limit < _LARGE:
            yield f"{words} {limit:,}"
    if (least := getattr(one, "min_length", None)) is not None:
        yield f"{least} or more"
    if (step := getattr(one, "multiple_of", None)) is not None:
        yield "even" if step == 2 else f"a multiple of {step}"
    if getattr(one, "max_length", None) is not None:
        yield f"at most {one.max_length} letters, digits, `.`, `_` and `-`"
    for inner in getattr(one, "metadata", ()):
        yield from _limits(inner)


def _linked(models: list[type[BaseModel]]) -> str:
    titles = {model: title for title, model in SECTIONS.items()}
    anchors = {
        one: title.lower().replace(":", "").replace(" ", "-") for one, title in titles.items()
    }
    return " or ".join(
        f"[{titles[one][0].lower()}{titles[one][1:]}](#{anchors[one]})" for one in models
    )


def _names(values: Any) -> str:
    return ", ".join(f"`{value}`" for value in values)


def plain(value: Any) -> Any:
    """A default as a study file says it; of a part of the specification what differs from its own
    defaults.
    """
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_defaults=True)
    return [plain(one) for one in value] if isinstance(value, tuple) else value


def _yaml(value: Any) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10_000).strip()
    return text.removesuffix("...").strip()


def _prose(text: str) -> str:
    text = " ".join(text.replace("``", "`").replace("None", "null").split()).replace("|", "\\|")
    return re.sub(r"docs/([\w/-]+)\.md", r"[\1](../\1.md)", text)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def columns_page() -> str:
    """The page on the columns of results and on metrics, as Markdown."""
    lines = [
        "# Columns and metrics",
        "",
        "Look up every column of the result tables, and every metric.",
        "[Results](../results.md) explains intervals and baselines.",
        "",
    ]
    for title, rows in _ROWS.items():
        lines += [f"## `{title}`", "", f"Has {rows}.", "", "| Column | Meaning |", "| --- | --- |"]
        lines += [_row(f"`{name}`", _prose(said)) for name, said in MEANINGS[title].items()] + [""]
    lines += ["## Metrics", "", "Higher is better for all.", ""]
    lines += ["| Metric | A score is | Kinds of tasks |", "| --- | --- | --- |"]
    for metric, meaning in MEANINGS["metrics"].items():
        kinds = _names(
            kind
            for kind, known in KINDS.items()
            if metric in (*known.metrics, *known.native_metrics)
        )
        lines.append(_row(f"`{metric}`", _prose(meaning), kinds))
    return "\n".join(lines).rstrip() + "\n"
