"""Code of the user's own in a study, from files that the command line gives. The study holds their
digests and its own orders' scores, so what reads a stored one knows its keys and runs nothing.
"""

import inspect
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TypeAlias

from papa.errors import SpecError, in_one_line
from papa.scores.custom import CustomCode, NamedCode, missing_code_message
from papa.spec import CodeSpec, ExternalScores, StudySpec, TaskSpec
from papa.spec.orders import module_of, scores_in

CodeFiles: TypeAlias = Mapping[str, str]
"""The source code of files, by the names that a study gives them."""


def read_code(files: Sequence[Path]) -> CodeFiles:
    """Read files of custom code."""
    code_files: dict[str, str] = {}
    for file in files:
        if file.suffix != ".py" or not module_of(f"{file.stem}:name") or file.stem in code_files:
            raise SpecError(
                f"--code {file}: expected files NAME.py with different names of letters, "
                "digits and _, and not scores or reversed: rename the file"
            )
        try:
            code_files[file.stem] = file.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            raise SpecError(f"--code {file} is not UTF-8 ({error}): save it as UTF-8") from None
    return code_files


def with_code(study: StudySpec, code_files: CodeFiles) -> StudySpec:
    """Return the study with the digests of the files that it names, whose names it has checked."""
    orders = [name for name in map(scores_in, study.orders) if module_of(name)]
    task_names = [name for task in study.tasks for name in (task.metric, task.custom_probe) if name]
    modules = {module_of(name) for name in (*orders, *task_names)}
    for module in code_files.keys() - modules:
        raise SpecError(
            f"--code {module}.py: the study names nothing from it: leave out --code, or name "
            f"{module}:… as an order, a metric or a custom_probe"
        )
    external = tuple(scores for scores in study.scores if module_of(scores.name) not in code_files)
    digests = {code.name: code.sha256 for code in study.code}
    digests |= {name: sha256(code.encode()).hexdigest() for name, code in code_files.items()}
    known = {scores.name for scores in external}
    missing = [name for name in orders if module_of(name) not in code_files and name not in known]
    missing += [name for name in task_names if module_of(name) not in (None, *digests)]
    if missing:
        raise SpecError(missing_code_message(str(missing[0])))
    code = [CodeSpec(name=name, sha256=digests[name]) for name in digests if name in modules]
    study = study.model_copy(update={"code": tuple(code), "scores": external})
    for task in study.tasks:
        for name in (task.metric, task.custom_probe):
            custom = _named(study, name, code_files)
            if custom and custom.source_code is not None:
                _check(custom, is_probe=name == task.custom_probe)
    return study


def with_orders(study: StudySpec, code_files: CodeFiles, layers: int, heads: int) -> StudySpec:
    """Return the study with the scores of the head orders that these files define."""
    scores = list(study.scores)
    for name in dict.fromkeys(map(scores_in, study.orders)):
        order = _named(study, name, code_files)
        if order is None or order.source_code is None:
            continue
        # It imports torch, which looking at a finished study does without.
        from papa.ranking.external_scores import scores_of

        try:
            values = scores_of(order.load(), layers, heads)
        except Exception as error:
            why = error if isinstance(error, SpecError) else f"it failed ({in_one_line(error)})"
            raise SpecError(f"{name}: {why}") from error
        scores.append(ExternalScores.model_validate({"name": name, "values": values}))
    return study.model_copy(update={"scores": tuple(scores)})


def code_of(study: StudySpec, task: TaskSpec, code_files: CodeFiles) -> CustomCode | None:
    """Return the custom code of a task, as far as its files are known."""
    metric, probe = (_named(study, name, code_files) for name in (task.metric, task.custom_probe))
    return CustomCode(metric, probe) if metric or probe else None


def _named(study: StudySpec, name: str | None, code_files: CodeFiles) -> NamedCode | None:
    """Return the code of this name; None where no code has it."""
    module = module_of(name)
    digests = (code.sha256 for code in study.code if code.name == module)
    return NamedCode(name, next(digests, ""), code_files.get(module)) if name and module else None


def _check(custom: NamedCode, *, is_probe: bool) -> None:
    """Raise an error unless the code is a probe, or a function of two arguments."""
    code = custom.load()
    try:
        if is_probe:
            from papa.probes.estimators import check_probe

            return check_probe(code)
        inspect.signature(code).bind(None, None)
    except SpecError as error:
        raise SpecError(f"{custom.name}: {error}") from None
    except TypeError as error:
        raise SpecError(
            f"{custom.name} cannot be called with true and predicted classes "
            f"({in_one_line(error)}): make it a function of two arguments"
        ) from None
