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

from papa.credentials import WHERE_INSTEAD, holds_credentials, texts_in
from papa.errors import PapaError, Problem, SpecError, in_one_line, meant, shortened, shown
from papa.spec import StudySpec, listed
from papa.spec.document import read_yaml, text_of
from papa.spec.head_scores import read_scores
from papa.spec.messages import AS_THE_AUTHORS_RAN, MalformedError, sentence
from papa.spec.orders import module_of, scores_in
from papa.spec.task import OWN_RATE

REGISTRY = files("papa") / "corpora" / "registry.yaml"
_DEEPEST = 10
"""Levels of a study's keys."""
_MOST_LISTED = 12
_AUTHORS: dict[str, dict[str, Any]] = {
    "layout": {"one_text_truncation": "half", "segment_ids": "stay"},
    "ranking": {"seeds": [0]},
}
_AUTHORS_PROBE = {"encoder_dropout": True}
_AUTHORS_METRICS = {"token_f1": "bare_entity_f1"}


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
        document = read_yaml(text_of(path), str(path))
    except FileNotFoundError:
        near = [file.stem for file in path.parent.glob("*.y*ml")] if path.parent.is_dir() else []
        raise SpecError(
            f"there is no study at {path}{meant(path.stem, near)}: "
            "give the path of a YAML file, such as studies/demo.yaml, or write one with 'papa init'"
        ) from None
    except (OSError, ValueError) as error:
        raise SpecError(
            f"{path} cannot be read ({in_one_line(error)}): give the path of a YAML file"
        ) from None
    if not isinstance(document, dict):
        raise SpecError(
            f"{path} is not a study: expected a mapping with name, encoders and tasks, found "
            f"{_kind(document)}; 'papa init' writes an example"
        )
    for setting in overrides:
        override(document, setting)
    return resolve_study(document, folder=path.parent, origin=str(path))


def resolve_study(document: Mapping[Any, Any], *, folder: Path, origin: str) -> StudySpec:
    """A study from a mapping: names become full tasks, paths become absolute.

    With ``as_the_authors_ran: true`` the switches of docs/fidelity.md start on the authors' side;
    what the study says itself still wins. The specification holds the switches, not the key.
    """
    _check_texts(document, origin)
    resolved = dict(document)
    authors = resolved.pop(AS_THE_AUTHORS_RAN, False)
    if not isinstance(authors, bool):
        raise SpecError(f"{origin}: '{AS_THE_AUTHORS_RAN}' is {shown(authors)}: use true or false")
    faults: dict[tuple[str | int, ...], str] = {}
    for key, theirs in _AUTHORS.items() if authors else ():
        if isinstance(ours := resolved.get(key, {}), dict) and "seed" not in ours:
            resolved[key] = {**theirs, **ours}
    if isinstance(path := resolved.get("reference"), str):
        resolved["reference"] = str(_absolute(path, folder, f"{origin}: 'reference'"))
    for key, resolve in _RESOLVED.items():
        if not isinstance(resolved.get(key), list):
            continue
        resolved[key] = entries = list(resolved[key])
        for index, entry in enumerate(entries):
            try:
                entries[index] = resolve(entry, folder, origin, authors)
            except SpecError as error:
                entries[index], faults[key, index] = None, str(error).removeprefix(f"{origin}: ")
    orders, scores = resolved.get("orders"), resolved.get("scores", [])
    try:
        resolved |= _resolve_scores(orders, scores, folder, origin)
    except PapaError as error:
        resolved["orders"], faults["orders",] = None, f"'orders': {error}"
    try:
        return StudySpec.model_validate(resolved)
    except ValidationError as error:
        faults |= {
            problem["loc"]: sentence(problem)
            for problem in error.errors()
            if problem["loc"][:2] not in faults
            # A list all of whose entries are wrong counts as empty, too.
            and (problem["type"] != "too_short" or not problem["input"])
        }
    raise MalformedError([Problem(origin, SpecError(fault)) for fault in faults.values()], resolved)


def _check_texts(document: Mapping[Any, Any], origin: str) -> None:
    """Refuse a study that names a password or key, as studies are stored, logged and shown; and
    what YAML can escape and no file can hold: one half of a surrogate pair.
    """
    for path, text in texts_in(document):
        if holds_credentials(text):
            raise SpecError(
                f"{origin}: '{path}' holds a user, password, key or token: {WHERE_INSTEAD}"
            )
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise SpecError(
                f"{origin}: '{shortened(path)}' holds {shown(text)}, half a character: correct it"
            )


def _absolute(path: str, folder: Path, where: str) -> Path:
    """A study's path from its folder; what no file can have as its path is refused."""
    try:
        absolute = (folder / Path(path).expanduser()).resolve()
        absolute.exists()
    except (OSError, RuntimeError, ValueError) as error:
        reason = in_one_line(error).replace("embedded null byte", "it holds a null byte")
        raise SpecError(
            f"{where} is {shown(path)}, which is no usable path ({reason}): correct it"
        ) from None
    return absolute


def _resolve_encoder(entry: Any, folder: Path, origin: str, _: bool) -> Any:
    entry = {"name": entry} if isinstance(entry, str) else entry
    if isinstance(entry, dict) and isinstance(entry.get("name"), str) and entry["name"]:
        local = _absolute(entry["name"], folder, f"{origin}: the encoder")
        if entry["name"].startswith((".", "/", "~")) or local.is_dir():
            return {**entry, "name": str(local)}
    return entry


def _resolve_task(entry: Any, folder: Path, origin: str, authors: bool) -> Any:
    entry = {"name": entry} if isinstance(entry, str) else entry
    if not isinstance(entry, dict):
        return entry
    entry = dict(entry)
    known = registry()
    base = entry.pop("base", entry.get("name"))
    if base is not None and not isinstance(base, str):
        raise SpecError(
            f"{origin}: a task's name is {shown(base)}, expected text such as cola: correct it"
        )
    if base in known:
        defaults = {"name": base, **known[base]}
        if authors:
            defaults["metric"] = _AUTHORS_METRICS.get(defaults["metric"], defaults["metric"])
        if entry.get("head") == "own":
            defaults["probe"] = {**defaults["probe"], "learning_rate": OWN_RATE}
        entry = _merged(defaults, entry)
    elif "kind" not in entry:
        raise SpecError(
            f"{origin}: task {shown(base)} is unknown{meant(base, known)}: use one of "
            f"{listed(sorted(known))}, or describe it in full (kind, source, columns, metric, "
            "slots, probe; 'papa init' writes an example)"
        )
    if authors and isinstance(entry.get("probe"), dict):
        entry["probe"] = {**_AUTHORS_PROBE, **entry["probe"]}
    source = entry.get("source")
    if isinstance(source, dict) and source.get("kind") == "files":
        paths = {
            split: str(_absolute(source[split], folder, f"{origin}: the source's '{split}'"))
            for split in ("train", "validation")
            if isinstance(source.get(split), str)
        }
        entry["source"] = {**source, **paths}
    return entry


def _resolve_constants(entry: Any, folder: Path, origin: str, authors: bool) -> Any:
    entry = {"kind": entry} if isinstance(entry, str) else entry
    if isinstance(entry, dict) and entry.get("corpus") is not None:
        return {**entry, "corpus": _resolve_task(entry["corpus"], folder, origin, authors)}
    return entry


_RESOLVED = {
    "encoders": _resolve_encoder,
    "tasks": _resolve_task,
    "constants": _resolve_constants,
}
"""What of a study may be given by its name, or by paths from the study's folder."""


def _resolve_scores(orders: Any, scores: Any, folder: Path, origin: str) -> dict[str, Any]:
    """The study's scores, with those of the files that its orders name."""
    if not isinstance(orders, list) or not isinstance(scores, list):
        return {}
    named = dict.fromkeys(
        filter(None, (scores_in(order) for order in orders if isinstance(order, str)))
    )
    held = [entry.get("name") for entry in scores if isinstance(entry, dict)]
    read = [
        {"name": name, "values": read_scores(_absolute(name, folder, where)).tolist()}
        for where in [f"{origin}: the file of scores"]
        for name in named
        if name not in held and not module_of(name)
    ]
    return {"scores": [*scores, *read]} if named else {}


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
    setting = shortened(setting, 200)
    if not equals or not path:
        raise SpecError(f"--set {setting}: expected KEY=VALUE, such as execution.workers=2")
    value = read_yaml(text, f"--set {setting}: the value")
    *parents, last = path.split(".")
    if len(parents) > _DEEPEST:
        raise SpecError(
            f"--set {setting}: no key of a study is more than {_DEEPEST} deep: correct it"
        )
    node: Any = document
    for key in parents:
        if not isinstance(node, dict | list):
            break
        at: Any = _index(node, key, setting) if isinstance(node, list) else key
        inner = node.setdefault(at, {}) if isinstance(node, dict) else node[at]
        # An entry given by its bare name becomes a mapping that can take overrides.
        if isinstance(inner, str):
            inner = node[at] = {"kind" if parents[0] == "constants" else "name": inner}
        node = inner
    if isinstance(node, list):
        node[_index(node, last, setting)] = value
    elif isinstance(node, dict):
        node[last] = value
    else:
        raise SpecError(
            f"--set {setting}: '{shortened('.'.join(parents))}' holds {_kind(node)}, which has no "
            f"key {shown(last)}"
        )


def _index(values: list[Any], key: str, setting: str) -> int:
    if not key.isdecimal() or len(key) > 9 or int(key) >= len(values):
        first = enumerate(map(_entry, values[:_MOST_LISTED]))
        entries = [f"{index} ({shortened(entry, 40)})" for index, entry in first]
        more = ["…"] if len(values) > _MOST_LISTED else []
        use = listed(entries + more) or "nothing, it is empty"
        raise SpecError(
            f"--set {setting}: {shown(key)} is not an index of a list of {len(values)}: use {use}"
        )
    return int(key)


def _entry(value: Any) -> str:
    """What a person calls an entry of a list."""
    return str(value.get("name", value.get("kind", "…")) if isinstance(value, dict) else value)


def _kind(value: Any) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"
