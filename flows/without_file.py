"""A study without a file: ``papa run --encoder NAME --task NAME``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flows.terminal import short_name
from papa.errors import SpecError
from papa.spec import StudySpec
from papa.spec.file import override, resolve_study

_EXAMPLE = "papa run --encoder google-bert/bert-base-uncased --task cola"


def study_without_file(
    study: Path | None,
    encoders: Sequence[str],
    tasks: Sequence[str],
    limit: int | None,
    overrides: Sequence[str],
) -> StudySpec:
    """The study of some encoders on some tasks, everything else as a study file has it that says
    nothing of it.

    Args:
        study: a file that was given as well, which is refused.
        encoders, tasks: names as in a study file; folders are relative to the working directory.
        limit: rows of each split, at most; None takes all.
        overrides: ``a.b=value``.

    Raises:
        SpecError: encoders or tasks are missing, a file was given as well, or the study is
            impossible.
    """
    if study is not None:
        raise SpecError(
            f"a study is a file, or --encoder and --task: give {study} alone, with --set for what "
            "should differ"
        )
    for option, names in (("--encoder", encoders), ("--task", tasks)):
        if not names:
            raise SpecError(
                f"{option} is missing: give a study's file, or encoders and tasks, such as "
                f"{_EXAMPLE}"
            )
    rows = {} if limit is None else {"train_rows": limit, "validation_rows": limit}
    document: dict[str, Any] = {
        "name": _name(encoders, tasks, limit),
        "encoders": list(encoders),
        "tasks": [{"name": task, **rows} for task in tasks],
    }
    for setting in overrides:
        override(document, setting)
    return resolve_study(document, folder=Path.cwd(), origin="the command line")


def _name(encoders: Sequence[str], tasks: Sequence[str], limit: int | None) -> str:
    """What the study is called: by its encoders and tasks, so that another study has results of its
    own.
    """
    parts = [
        "+".join(map(short_name, encoders)),
        "+".join(tasks),
        *([f"{limit}-rows"] if limit else []),
    ]
    return re.sub(r"[^A-Za-z0-9._]+", "-", "-".join(parts)).strip("-._") or "study"
