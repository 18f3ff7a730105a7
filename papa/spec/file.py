"""A study from its YAML file: full tasks, absolute paths, overrides, errors in one sentence."""

import copy
import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from importlib.resources import files
from operator import getitem
from pathlib import Path
from typing import Any, TypeAlias

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from papa.credentials import WHERE_INSTEAD, holds_credentials, texts_in
from papa.errors import (
    CheckError,
    DataError,
    Problem,
    SpecError,
    in_one_line,
    joined,
    meant,
    nearest_to,
    shown,
)
from papa.spec import HeadScores, StudySpec
from papa.spec.orders import module_of, scores_in
from papa.spec.score_files import read_score_file
from papa.spec.task import NAME_CHARACTERS, NATIVE_TRAINING, Frozen

REGISTRY = files("papa") / "text" / "registry.yaml"
AS_THE_AUTHORS_RAN = "as_the_authors_ran"
"""The key of a study file that turns every switch of docs/fidelity.md to the authors' side."""
Document: TypeAlias = dict[str, Any]
"""A mapping of YAML; pydantic checks what it holds."""
_AUTHORS: Document = {
    "layout": {"one_text_truncation": "half", "segment_ids": "stay"},
    "ranking_seeds": [0],
}


RENAMED_KEYS = {
    "constants": "substitutes",
    "fractions": "keep",
    "seeds": "probe_seeds",
    "ranking.seeds": "ranking_seeds",
}
"""Today's names of keys of a study, by the earlier ones."""


@dataclass(frozen=True)
class Rest:
    """What is left of a study without the keys and the entries of lists that have faults.

    Attributes:
        study: The study, in which other problems may be found.
        positions: Of each list, which position an entry of ``study`` has in the file.
    """

    study: StudySpec
    positions: Mapping[str, Sequence[int]]

    def in_file(self, problem: Problem) -> Problem:
        """Return a problem of ``study`` with the position that the file has."""
        match = re.match(r"(\w+)\.(\d+)", problem.where)
        if match is None:
            return problem
        position = self.positions[match[1]][int(match[2])]
        return replace(problem, where=f"{match[1]}.{position}{problem.where[match.end() :]}")


class StudyFileError(CheckError):
    """A study's keys or values are wrong.

    Attributes:
        problems: Each of them.
        rest: What is left of the study; None where that is none.
    """

    def __init__(self, problems: Sequence[Problem], rest: Rest | None) -> None:
        super().__init__(problems)
        self.problems = problems
        self.rest = rest


@dataclass(frozen=True)
class _Fault:
    """What is wrong with the value at a path of a study's mapping.

    Attributes:
        is_unknown: Whether its key is one that no study has.
        correction: The value that was meant, as far as is known.
    """

    path: tuple[Any, ...]
    sentence: str
    is_unknown: bool = False
    correction: str | None = None


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
"""Of pydantic's types of errors whose message names what a reader of YAML does not see."""


class _Loader(yaml.SafeLoader):
    """Aliases can make a short text endless, and of a key given twice YAML keeps the last."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            self._refuse(self.peek_event(), "an alias is not read: write the value out")
        return super().compose_node(parent, index)

    def construct_mapping(
        self, node: yaml.MappingNode, deep: bool = False
    ) -> dict[Hashable, object]:
        names = set()
        for key, _ in node.value:
            name = str(key.value)
            if name in names:
                self._refuse(key, f"'{name}' stands there a second time: remove one of them")
            names.add(name)
        return super().construct_mapping(node, deep)

    def _refuse(self, node: Any, reason: str) -> None:
        raise yaml.MarkedYAMLError(problem=reason, problem_mark=node.start_mark)


def read_yaml(text: str, origin: str) -> Any:
    """Return the value that YAML describes; a SpecError names the line where it is none."""
    try:
        return yaml.load(text, _Loader)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise SpecError(f"{origin} is not YAML: {in_one_line(error)}") from None


def registry() -> dict[str, Document]:
    """Return the tasks known by name, as mappings that a study may override key by key."""
    return yaml.safe_load(REGISTRY.read_text())


def load_study(path: Path, overrides: Sequence[str] = ()) -> StudySpec:
    """Load a study from its YAML file, with ``a.b=value`` laid over it: values are YAML, and items
    of lists go by their index.
    """
    try:
        document = read_yaml(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        near = meant(path.name, [file.name for file in path.parent.glob("*.y*ml")])
        raise SpecError(
            f"there is no study file at {path}{near} ({in_one_line(error)}): give the path of "
            "a YAML file, such as studies/demo.yaml, or write one with 'papa init'"
        ) from None
    if not isinstance(document, dict):
        raise SpecError(
            f"{path} is not a study file (it holds {shown(document)}): 'papa init' writes "
            "an example"
        )
    for setting in overrides:
        override(document, setting)
    return resolve_study(document, folder=path.parent, origin=str(path))


def resolve_study(document: Mapping[str, object], *, folder: Path, origin: str) -> StudySpec:
    """Return a study from a mapping: names become full tasks, and relative paths absolute. With
    ``as_the_authors_ran: true`` switches start as the authors had them; what the study itself says
    takes precedence, and the specification holds the switches, not the key.
    """
    for where, text in texts_in(document):
        # Studies are stored, logged and shown.
        if holds_credentials(text):
            raise SpecError(
                f"{origin}: '{where}' holds a user, password, key or token: {WHERE_INSTEAD}"
            )
    _refuse_earlier_names(document, origin)
    resolved: Document = dict(document)
    authors = resolved.pop(AS_THE_AUTHORS_RAN, False)
    if not isinstance(authors, bool):
        raise SpecError(f"{origin}: '{AS_THE_AUTHORS_RAN}' is {shown(authors)}: use true or false")
    resolved = _merged(_AUTHORS if authors else {}, resolved)
    if isinstance(resolved.get("reference"), str):
        resolved["reference"] = _absolute(resolved["reference"], folder)
    known = registry()
    faults: list[_Fault] = []

    def in_full(entry: object, key: str) -> object:
        mapping = _as_mapping(entry, key)
        if not isinstance(mapping, dict):
            return mapping
        if key == "tasks":
            return _full_task(mapping, known, folder, authors)
        if key == "encoders":
            return _full_encoder(mapping, folder)
        if "corpus" in mapping:
            return mapping | {"corpus": in_full(mapping["corpus"], "tasks")}
        return mapping

    for key in ("encoders", "tasks", "substitutes"):
        if isinstance(resolved.get(key), list):
            resolved[key] = list(resolved[key])
            for index, entry in enumerate(resolved[key]):
                try:
                    resolved[key][index] = in_full(entry, key)
                except SpecError as error:
                    faults.append(_Fault((key, index), f"'{key}.{index}': {error}"))
    unknown = [fault.path for fault in faults]
    study, others = _validated(resolved)
    faults += [fault for fault in others if fault.path[:2] not in unknown]
    if study is not None:
        scores, faults = _scores_of_files(study, folder)
    if study is not None and not faults:
        return study.model_copy(update={"scores": scores})
    problems = [Problem(origin, SpecError(fault.sentence)) for fault in faults]
    raise StudyFileError(problems, _without(resolved, faults))


def _validated(document: Document) -> tuple[StudySpec | None, list[_Fault]]:
    """Return the study that a mapping describes, or all faults of the mapping."""
    try:
        return StudySpec.model_validate(document), []
    except ValidationError as error:
        faults = [
            _Fault(
                tuple(_path_of(fault)),
                line,
                fault["type"] == "extra_forbidden",
                nearest_to(fault["input"], _names_in(fault))
                if fault["type"] == "literal_error"
                else None,
            )
            for fault in error.errors()
            if not _follows_from_another(fault)
            for line in sentence(fault).split("\n")
        ]
        return None, faults


def _without(document: Document, faults: Sequence[_Fault]) -> Rest | None:
    """Return what is left of a study without what has faults, if that is a study; values of which
    it is known what was meant are corrected.
    """
    rest: Any = copy.deepcopy(document)
    dropped: set[tuple[Any, ...]] = set()
    for fault in faults:
        key, *inner = fault.path
        *parents, last = fault.path
        if fault.is_unknown:
            del reduce(getitem, parents, rest)[last]
        elif fault.correction:
            reduce(getitem, parents, rest)[last] = fault.correction
        else:
            is_entry = bool(inner) and isinstance(rest.get(key), list)
            dropped.add(fault.path[: 2 if is_entry else 1])
    kept = {key: value for key, value in rest.items() if (key,) not in dropped}
    positions = {
        key: [index for index in range(len(entries)) if (key, index) not in dropped]
        for key, entries in kept.items()
        if isinstance(entries, list)
    }
    lists = {key: [kept[key][index] for index in indices] for key, indices in positions.items()}
    # Nothing that is checked follows from the name.
    study, _ = _validated({"name": "study", **kept, **lists})
    return Rest(study, positions) if study else None


def _follows_from_another(fault: ErrorDetails) -> bool:
    """Return whether pydantic names a fault only because of another: a list all of whose entries
    are wrong is too short as well, and defaults that depend on wrong keys are unknown.
    """
    is_emptied = fault["type"] == "too_short" and bool(fault["input"])
    return is_emptied or fault["type"] == "default_factory_not_called"


def _scores_of_files(study: StudySpec, folder: Path) -> tuple[tuple[HeadScores, ...], list[_Fault]]:
    """Return the scores of a study and of every file that its orders name, and which of the files
    cannot be read.
    """
    scores = {scores.name: scores for scores in study.scores}
    faults: list[_Fault] = []
    for index, name in enumerate(map(scores_in, study.orders)):
        if name is not None and name not in scores and not module_of(name):
            try:
                values = read_score_file(_absolute(name, folder)).tolist()
            except DataError as error:
                faults.append(_Fault(("orders", index), f"'orders.{index}': {error}"))
            else:
                scores[name] = HeadScores(name=name, values=values)
    return tuple(scores.values()), faults


def _refuse_earlier_names(document: Mapping[str, object], origin: str) -> None:
    """Raise a SpecError that says the new name of every key and value that was renamed."""
    ranking = document.get("ranking")
    keys = {str(key) for key in document}
    if isinstance(ranking, Mapping):
        keys |= {f"ranking.{key}" for key in ranking}
    renamed = {f"'{old}'": f"'{new}'" for old, new in RENAMED_KEYS.items() if old in keys}
    tasks = document.get("tasks")
    for task in tasks if isinstance(tasks, list) else ():
        if isinstance(task, Mapping) and task.get("head") == "own":
            renamed["'head: own'"] = "'head: native'"
        if isinstance(task, Mapping) and "own_probe" in task:
            renamed["'own_probe'"] = "'custom_probe'"
    orders = document.get("orders")
    if isinstance(orders, list) and "lambda_reversed" in orders:
        renamed["the order 'lambda_reversed'"] = "'reversed:lambda'"
    if renamed:
        today = joined(f"{old} is now {new}" for old, new in renamed.items())
        raise SpecError(f"{origin}: {today}: rename it (CHANGELOG.md lists all new names)")


def sentence(fault: ErrorDetails) -> str:
    """Return what pydantic refused: the key, what is expected there, what was found, and the name
    that is nearest to it; a line for each of our own reasons.
    """
    steps = [*map(str, _path_of(fault))]
    where = ".".join(steps) or "the study"
    value = fault["input"]
    if fault["type"] == "extra_forbidden":
        models = [StudySpec] if len(steps) == 1 else Frozen.__subclasses__()
        keys = {key for model in models for key in model.model_fields}
        sections = _sections_with(steps[-1]) if len(steps) == 1 else []
        if sections:
            return f"unknown key '{where}': it belongs to a section, as {joined(sections)}"
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


def _path_of(fault: ErrorDetails) -> list[Any]:
    """Return the keys and indices that lead to a fault, without the kinds that pydantic names."""
    return [step for step in fault["loc"] if step not in ("files", "hub", "embedded")]


def _sections_with(key: str) -> list[str]:
    """Return the sections of a study that have this key, as ``section.key``."""
    return [
        f"{name}.{key}"
        for name, field in StudySpec.model_fields.items()
        if isinstance(field.annotation, type)
        and issubclass(field.annotation, Frozen)
        and key in field.annotation.model_fields
    ]


def _absolute(path: str, folder: Path) -> str:
    return str((folder / Path(path).expanduser()).resolve())


def _as_mapping(entry: object, key: str) -> object:
    """Return an entry of a study's list, as a mapping where it is a bare name."""
    return {"kind" if key == "substitutes" else "name": entry} if isinstance(entry, str) else entry


def _full_encoder(entry: Document, folder: Path) -> Document:
    """Return an encoder, by its absolute path where it is a folder."""
    name = entry.get("name")
    if not isinstance(name, str) or not name:
        return entry
    local = _absolute(name, folder)
    is_path = name.startswith((".", "/", "~")) or Path(local).is_dir()
    return entry | {"name": local} if is_path else entry


def _full_task(
    entry: Document, known: Mapping[str, Document], folder: Path, authors: bool
) -> Document:
    """Return a task with all that the registry knows of it."""
    entry = dict(entry)
    base = entry.pop("base", entry.get("name"))
    if isinstance(base, str) and base in known:
        defaults = _merged({"name": base}, known[base])
        if authors and defaults["metric"] == "token_f1":
            defaults["metric"] = "bare_entity_f1"
        if entry.get("head") == "native":
            defaults = _merged(defaults, {"probe": NATIVE_TRAINING})
        entry = _merged(defaults, entry)
    elif "kind" not in entry:
        raise SpecError(
            f"task {shown(base)} is unknown{meant(base, known)}: use one of "
            f"{joined(sorted(known))}, or describe it in full (kind, source, columns, metric, "
            "slots, probe; 'papa init' writes an example)"
        )
    if authors and isinstance(entry.get("probe"), dict):
        entry["probe"] = {"encoder_dropout": True, **entry["probe"]}
    source = entry.get("source")
    if isinstance(source, dict) and source.get("kind") == "files":
        paths = {split: source.get(split) for split in ("train", "validation")}
        entry["source"] = source | {
            split: _absolute(path, folder) for split, path in paths.items() if isinstance(path, str)
        }
    return entry


def _merged(base: Mapping[str, object], over: Mapping[str, object]) -> Document:
    """Return ``base`` with the values of ``over``, recursively; mappings with a ``kind`` are not
    merged.
    """
    merged: Document = {**base, **over}
    for key, value in over.items():
        inner = base.get(key)
        if isinstance(value, Mapping) and isinstance(inner, Mapping) and "kind" not in value:
            merged[key] = _merged(inner, value)
    return merged


def override(document: Document, setting: str) -> None:
    """Lay one ``a.b=value`` over a study's mapping."""
    path, equals, text = setting.partition("=")
    if not equals or not path:
        raise SpecError(f"--set {setting}: expected KEY=VALUE, such as execution.workers=2")
    value = read_yaml(text, f"--set {setting}: the value")
    *parents, last = path.split(".")
    node: Any = document
    try:
        for key in parents:
            index = int(key) if isinstance(node, list) else key
            if isinstance(node, dict):
                node.setdefault(index, {})
            # An entry given by its bare name becomes a mapping that can take overrides.
            node[index] = node = _as_mapping(node[index], parents[0])
        key = last
        node[int(key) if isinstance(node, list) else key] = value
    except (IndexError, TypeError, ValueError):
        reason = f"{shown(key)} is no key of {shown(node)}"
        if isinstance(node, list):
            reason = f"{shown(key)} is no index of a list: give a number from 0 to {len(node) - 1}"
        raise SpecError(f"--set {setting}: {reason}") from None
