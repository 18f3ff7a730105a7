"""A study from its YAML file: full tasks, absolute paths, overrides, errors in one sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from papa.credentials import WHERE_INSTEAD, holds_credentials, texts_in
from papa.errors import CheckError, DataError, Problem, SpecError, in_one_line, meant, shown
from papa.spec import StudySpec, listed
from papa.spec.document import read_yaml
from papa.spec.head_scores import read_scores
from papa.spec.orders import module_of, scores_in
from papa.spec.task import OWN_RATE
from papa.spec.values import Frozen

REGISTRY = files("papa") / "corpora" / "registry.yaml"
AS_THE_AUTHORS_RAN = "as_the_authors_ran"
"""The key of a study file that turns every switch of docs/fidelity.md to the authors' side."""
_AUTHORS: dict[str, dict[str, Any]] = {
    "layout": {"one_text_truncation": "half", "segment_ids": "stay"},
    "ranking": {"seeds": [0]},
}
_AUTHORS_METRICS = {"token_f1": "bare_entity_f1"}


class MalformedError(CheckError, SpecError):
    """A study's file has unknown keys or impossible values."""


def registry() -> dict[str, dict[str, Any]]:
    """The tasks known by name, as mappings that a study may override key by key."""
    return deepcopy(_parsed(REGISTRY.read_text()))


@cache
def _parsed(text: str) -> Any:
    # Every task of every study asks, and parsing takes 30 ms.
    return yaml.safe_load(text)


def load_study(path: Path, overrides: Sequence[str] = ()) -> StudySpec:
    """Read, override and resolve a study.

    Args:
        path: the YAML file; relative paths in it are relative to its folder.
        overrides: ``a.b=value`` with YAML values, applied over the file; list items by their index.
    """
    try:
        document = read_yaml(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        near = meant(path.stem, [file.stem for file in path.parent.glob("*.y*ml")])
        raise SpecError(
            f"there is no study at {path}{near} ({in_one_line(error)}): give the path of a YAML "
            "file, such as studies/demo.yaml, or write one with 'papa init'"
        ) from None
    if not isinstance(document, dict):
        raise SpecError(
            f"{path} is not a study: expected a mapping with name, encoders and tasks, found "
            f"{shown(document)}; 'papa init' writes an example"
        )
    for setting in overrides:
        override(document, setting)
    return resolve_study(document, folder=path.parent, origin=str(path))


def resolve_study(document: Mapping[Any, Any], *, folder: Path, origin: str) -> StudySpec:
    """A study from a mapping: names become full tasks, paths become absolute.

    With ``as_the_authors_ran: true`` the switches of docs/fidelity.md start on the authors' side;
    what the study says itself still wins. The specification holds the switches, not the key.
    """
    for where, text in texts_in(document):
        # Studies are stored, logged and shown.
        if holds_credentials(text):
            raise SpecError(
                f"{origin}: '{where}' holds a user, password, key or token: {WHERE_INSTEAD}"
            )
    resolved = dict(document)
    authors = resolved.pop(AS_THE_AUTHORS_RAN, False)
    if not isinstance(authors, bool):
        raise SpecError(f"{origin}: '{AS_THE_AUTHORS_RAN}' is {shown(authors)}: use true or false")
    resolved = _merged(_AUTHORS if authors else {}, resolved)
    if isinstance(path := resolved.get("reference"), str):
        resolved["reference"] = _absolute(path, folder)

    def in_full(entry: Any, key: str) -> Any:
        """An entry of a list, as a mapping where it is a bare name, with all that is known."""
        entry = _named(entry, "kind" if key == "constants" else "name")
        if not isinstance(entry, dict):
            return entry
        if key == "tasks":
            return _full_task(entry, folder, origin, authors)
        if key == "encoders" and isinstance(name := entry.get("name"), str) and name:
            local = _absolute(name, folder)
            by_path = name.startswith((".", "/", "~")) or Path(local).is_dir()
            return entry | ({"name": local} if by_path else {})
        return entry | ({"corpus": in_full(entry["corpus"], "tasks")} if "corpus" in entry else {})

    for key in ("encoders", "tasks", "constants"):
        if isinstance(entries := resolved.get(key), list):
            resolved[key] = [in_full(entry, key) for entry in entries]
    try:
        resolved |= _with_files(resolved.get("orders"), resolved.get("scores", []), folder)
        return StudySpec.model_validate(resolved)
    except ValidationError as error:
        # A list all of whose entries are wrong counts as too short as well.
        faults = [
            Problem(origin, SpecError(sentence(fault)))
            for fault in error.errors()
            if fault["type"] != "too_short" or not fault["input"]
        ]
        raise MalformedError(faults) from None
    except DataError as error:
        raise SpecError(f"{origin}: 'orders': {error}") from None


def sentence(fault: ErrorDetails) -> str:
    """What pydantic refused: the key, what is expected there, what was found, and the name that is
    nearest to it.
    """
    steps = [str(step) for step in fault["loc"] if step not in ("files", "hub", "embedded")]
    where, value = ".".join(steps) or "the study", fault["input"]
    if fault["type"] == "extra_forbidden":
        keys = {key for model in Frozen.__subclasses__() for key in model.model_fields}
        near = meant(steps[-1], {*keys, AS_THE_AUTHORS_RAN})
        return f"unknown key '{where}'{near}: correct it; 'papa init' explains the keys"
    context = fault.get("ctx", {})
    names = str(context.get("expected") or context.get("expected_tags", "")).split("'")
    given = value.get("kind") if isinstance(value, dict) and "tag" in fault["type"] else value
    silent = fault["type"] == "missing" or isinstance(given, dict)
    found = "" if silent else f", found {shown(given)}"
    return f"'{where}': {fault['msg'].removeprefix('Value error, ')}{found}{meant(given, names)}"


def _absolute(path: str, folder: Path) -> str:
    """A study's path from its folder."""
    return str((folder / Path(path).expanduser()).resolve())


def _named(entry: Any, key: str = "name") -> Any:
    """An entry of a list, as a mapping where it is a bare name."""
    return {key: entry} if isinstance(entry, str) else entry


def _full_task(entry: dict[str, Any], folder: Path, origin: str, authors: bool) -> dict[str, Any]:
    """A task with all that the registry knows of it."""
    entry, known = dict(entry), registry()
    base = entry.pop("base", entry.get("name"))
    if isinstance(base, str) and base in known:
        defaults = {"name": base, **known[base]}
        if authors:
            defaults["metric"] = _AUTHORS_METRICS.get(defaults["metric"], defaults["metric"])
        if entry.get("head") == "own":
            defaults["probe"]["learning_rate"] = OWN_RATE
        entry = _merged(defaults, entry)
    elif "kind" not in entry:
        raise SpecError(
            f"{origin}: task {shown(base)} is unknown{meant(base, known)}: use one of "
            f"{listed(sorted(known))}, or describe it in full (kind, source, columns, metric, "
            "slots, probe; 'papa init' writes an example)"
        )
    if authors and isinstance(entry.get("probe"), dict):
        entry["probe"] = {"encoder_dropout": True, **entry["probe"]}
    source = entry.get("source")
    if isinstance(source, dict) and source.get("kind") == "files":
        for split in ("train", "validation"):
            if isinstance(path := source.get(split), str):
                source = {**source, split: _absolute(path, folder)}
        entry["source"] = source
    return entry


def _with_files(orders: Any, scores: Any, folder: Path) -> dict[str, Any]:
    """The study's scores, with those of the files that its orders name."""
    if not isinstance(orders, list) or not isinstance(scores, list):
        return {}
    held = [entry.get("name") for entry in scores if isinstance(entry, dict)]
    named = dict.fromkeys(scores_in(order) for order in orders if isinstance(order, str))
    read = [
        {"name": name, "values": read_scores(_absolute(name, folder)).tolist()}
        for name in named
        if name is not None and name not in held and not module_of(name)
    ]
    return {"scores": [*scores, *read]} if read else {}


def _merged(base: Mapping[Any, Any], over: Mapping[Any, Any]) -> dict[Any, Any]:
    """``base`` with the values of ``over``, recursively; mappings with a ``kind`` stay whole."""
    merged = {**base, **over}
    for key, value in over.items():
        inner = base.get(key)
        if isinstance(value, Mapping) and isinstance(inner, Mapping) and "kind" not in value:
            merged[key] = _merged(inner, value)
    return merged


def override(document: dict[str, Any], setting: str) -> None:
    """Lay one ``a.b=value`` over a study's mapping."""
    path, equals, text = setting.partition("=")
    if not equals or not path:
        raise SpecError(f"--set {setting}: expected KEY=VALUE, such as execution.workers=2")
    value = read_yaml(text, f"--set {setting}: the value")
    *parents, last = path.split(".")
    node: Any = document
    try:
        for key in parents:
            at = int(key) if isinstance(node, list) else key
            if isinstance(node, dict):
                node.setdefault(at, {})
            # An entry given by its bare name becomes a mapping that can take overrides.
            node[at] = node = _named(node[at], "kind" if parents[0] == "constants" else "name")
        key = last
        node[int(key) if isinstance(node, list) else key] = value
    except (IndexError, TypeError, ValueError):
        what = f"{shown(key)} is no key or index of {shown(node)}"
        raise SpecError(f"--set {setting}: {what}") from None
