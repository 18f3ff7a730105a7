"""Whether a study's file still says what its stored results were computed from."""

from collections.abc import Iterator
from typing import Any

from papa.spec import StudySpec

_UNCOMPARED = {"execution", "reference", "code", "scores"}
"""Keys that change no result, that results do not name, or that are read from other files."""


def differing_keys(study: StudySpec, finished: StudySpec) -> list[str]:
    """Return the keys, such as ``tasks.0.slots``, in which a study differs from a finished one.
    What a run settles does not count: commits of the hub, and what ``precision: auto`` means.
    """
    ours, theirs = (spec.model_dump(mode="json", exclude=_UNCOMPARED) for spec in (study, finished))
    keys = [key.removeprefix(".") for key in _differing(ours, theirs, "")]
    read = {scores.name: scores for scores in finished.scores}
    for scores in study.scores:
        if scores != read.get(scores.name, scores):
            keys.append(f"scores ({scores.name})")
    return keys


def _differing(ours: Any, theirs: Any, key: str) -> Iterator[str]:
    is_settled_by_run = ours == "auto" or (ours is None and key.endswith(".revision"))
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        ours = dict(enumerate(ours))
        theirs = dict(enumerate(theirs))
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name in dict.fromkeys([*ours, *theirs]):
            yield from _differing(ours.get(name), theirs.get(name), f"{key}.{name}")
    elif ours != theirs and not is_settled_by_run:
        yield key
