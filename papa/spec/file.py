"""A study from its YAML file: full tasks, absolute paths, overrides, errors in one sentence."""

from collections.abc import Hashable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from papa.credentials import WHERE_INSTEAD, holds_credentials, texts_in
from papa.errors import DataError, Problem, SpecError, in_one_line, joined, meant, shown
from papa.spec import ExternalScores, StudySpec
from papa.spec.faults import Fault, StudyFileError, validated, without_faults
from papa.spec.orders import module_of, scores_in
from papa.spec.score_files import read_score_file
from papa.spec.study import AS_THE_AUTHORS_RAN
from papa.spec.task import NATIVE_TRAINING

REGISTRY = files("papa") / "text" / "registry.yaml"
Document: TypeAlias = dict[str, Any]
"""A mapping of YAML; pydantic checks what it holds."""
_AUTHORS: Document = {
    "layout": {"one_text_truncation": "half", "segment_ids": "stay"},
    "ranking_seeds": [0],
}


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
    return yaml.safe_load(REGISTRY.read_text(encoding="utf-8"))


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
    resolved: Document = dict(document)
    authors = resolved.pop(AS_THE_AUTHORS_RAN, False)
    if not isinstance(authors, bool):
        raise SpecError(f"{origin}: '{AS_THE_AUTHORS_RAN}' is {shown(authors)}: use true or false")
    resolved = _merged(_AUTHORS if authors else {}, resolved)
    if isinstance(resolved.get("reference"), str):
        resolved["reference"] = _absolute(resolved["reference"], folder)
    known = registry()
    faults: list[Fault] = []

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
                    faults.append(Fault((key, index), f"'{key}.{index}': {error}"))
    entries_refused = [fault.path for fault in faults]
    study, others = validated(resolved)
    faults += [fault for fault in others if fault.path[:2] not in entries_refused]
    if study is not None:
        scores, faults_of_files = _scores_of_files(study, folder)
        faults += faults_of_files
        if not faults:
            return study.model_copy(update={"scores": scores})
    problems = [Problem(origin, SpecError(fault.sentence)) for fault in faults]
    raise StudyFileError(problems, without_faults(resolved, faults))


def _scores_of_files(
    study: StudySpec, folder: Path
) -> tuple[tuple[ExternalScores, ...], list[Fault]]:
    """Return the scores of a study and of every file that its orders name, and which of the files
    cannot be read.
    """
    scores = {scores.name: scores for scores in study.scores}
    faults: list[Fault] = []
    for index, name in enumerate(map(scores_in, study.orders)):
        if name is not None and name not in scores and not module_of(name):
            try:
                values = read_score_file(_absolute(name, folder)).tolist()
            except DataError as error:
                faults.append(Fault(("orders", index), f"'orders.{index}': {error}"))
            else:
                scores[name] = ExternalScores(name=name, values=values)
    return tuple(scores.values()), faults


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


def _absolute(path: str, folder: Path) -> str:
    return str((folder / Path(path).expanduser()).resolve())


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
            node[index] = _as_mapping(node[index], parents[0])
            node = node[index]
        key = last
        node[int(key) if isinstance(node, list) else key] = value
    except (IndexError, TypeError, ValueError):
        reason = f"{shown(key)} is no key of {shown(node)}"
        if isinstance(node, list):
            reason = f"{shown(key)} is no index of a list of length {len(node)}: count from 0"
        raise SpecError(f"--set {setting}: {reason}") from None
