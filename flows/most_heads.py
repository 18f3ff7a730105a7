"""The most constant heads within a drop, for ``papa export``: what a study lacks is run first, then
numbers of heads between its fractions, by bisection, in this process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from flows.drops import NO_BASELINES, Answer, answers
from flows.export import ExportRequest, exportable_step
from flows.heads import tried_line
from flows.interrupt import Interruption
from flows.progress import StudyProgress
from flows.run import run_study
from flows.studies import save_study
from flows.terminal import say
from papa.errors import SpecError, meant
from papa.spec import StudySpec
from papa.spec.cells import order_matters
from papa.spec.file import resolve_study
from papa.spec.orders import needs_lambda
from papa.study.aggregate import place_results
from papa.study.here import run_here
from papa.study.store import Store
from papa.study.stored import StoredStudy


def run_and_choose(
    study: StudySpec,
    store: Store,
    request: ExportRequest,
    max_drop: float,
    interruption: Interruption,
    *,
    verbose: bool,
    code: Sequence[Path] = (),
) -> tuple[StudySpec, ExportRequest]:
    """The study and the cell to export: the most constant heads whose drop is surely within
    ``max_drop``.

    What the request needs of the study is run where it is not finished; then numbers of heads
    between its fractions are tried.
    """
    part = needed_part(study, request)
    stored = StoredStudy(part, store)
    named = {one.name for one in stored.inputs.study.code}
    code = [file for file in code if file.stem in named]
    cells = sorted(stored.steps.cells, key=lambda cell: cell.fraction)
    exportable_step(stored, next((c for c in cells if order_matters(c.fraction)), cells[0]))
    answer = _answer(part, store, max_drop)
    if answer.missing or answer.reason == NO_BASELINES:
        run_study(part, store, interruption, code=code, verbose=verbose)
        answer = _answer(part, store, max_drop)
    part, answer = search(part, store, max_drop, answer, code)
    if answer.most is None:
        why = answer.reason or "the interval of every drop reaches beyond it"
        raise SpecError(
            f"no number of heads is known to stay within a drop of {100 * max_drop:g} % "
            f"({answer.encoder} on {answer.task}: {why}): "
            "allow more, give the study more fractions or seeds, or choose yourself with --fraction"
        )
    request = replace(request, fraction=answer.most.fraction)
    labels = {kind.label for kind in study.constants}
    known = request.order in study.orders and request.constants in labels
    if known and {1.0, request.fraction} <= set(study.fractions):
        return study, request
    return part, replace(request, encoder=None, task=None)


def _answer(study: StudySpec, store: Store, max_drop: float) -> Answer:
    (answer,) = answers(StoredStudy(study, store), max_drop)
    return answer


def needed_part(study: StudySpec, request: ExportRequest) -> StudySpec:
    """The part of a study that a request needs, with what the study lacks for it; the study itself
    where that is all.
    """
    encoder = _only("encoder", request.encoder, {spec.name: spec for spec in study.encoders})
    task = _only("task", request.task, {spec.name: spec for spec in study.tasks})
    constants: Any = next(
        (kind for kind in study.constants if kind.label == request.constants), None
    )
    document = study.model_dump(mode="json") | {
        "encoders": [encoder.model_dump(mode="json")],
        "tasks": [task.model_dump(mode="json")],
        "constants": [constants.model_dump(mode="json") if constants else request.constants],
        "orders": [request.order],
        "fractions": sorted({1.0, *study.fractions}, reverse=True),
    }
    part = resolve_study(document, folder=Path.cwd(), origin="papa export")
    if part.model_copy(update={"fractions": study.fractions}) == study and 1.0 in study.fractions:
        return study
    return part.model_copy(
        update={"name": f"{study.name}-{task.name}-{Path(encoder.name).name}-within"}
    )


def _only(what: str, asked: str | None, named: Mapping[str, Any]) -> Any:
    """The one asked for, by its name in full or without its owner; the only one where none is."""
    found = [value for name, value in named.items() if asked in (None, name, Path(name).name)]
    if len(found) != 1:
        fault = f"{asked} is none of the study's{meant(asked, named)}" if asked else "is missing"
        raise SpecError(f"--{what} {fault}: give one of {', '.join(named)}")
    return found[0]


def search(
    part: StudySpec, store: Store, max_drop: float, answer: Answer, code: Sequence[Path] = ()
) -> tuple[StudySpec, Answer]:
    """The study with the numbers of heads that were tried, and what it says then; both as they were
    where no number is left between the most that is within the drop and the next that is not.

    Drops are taken to grow with the number of heads: half of what is left is tried next.
    """
    console = Console(stderr=True)
    low, high = _gap(answer)
    if answer.reason or high - low < 2:
        return part, answer
    if part.ranking.until_stable and needs_lambda(answer.order):
        say(console, "Not searched between fractions: ranking.until_stable ties λ to them.")
        return part, answer
    say(console, f"Trying numbers of heads between {low} and {high} of {answer.heads_in_all}:")
    part, tried = part.model_copy(update={"name": f"{part.name.removesuffix('-within')}-within"}), 0
    while high - low > 1:
        count = (low + high) // 2
        fraction = round(1 - count / answer.heads_in_all, 6)
        fractions = sorted({*part.fractions, fraction}, reverse=True)
        part = part.model_copy(update={"fractions": tuple(fractions)})
        _run_steps(StoredStudy(part, store, code), whole=False)
        answer = _answer(part, store, max_drop)
        say(console, tried_line(answer, count))
        tried += 1
        low, high = _gap(answer)
    say(console, f"{tried} tried: each may be within by luck, so confirm the number on other rows.")
    save_study(store, part)
    # The report refers to what was tried, so that 'papa prune' keeps it.
    _run_steps(StoredStudy(part, store, code), whole=True)
    return part, answer


def _gap(answer: Answer) -> tuple[int, int]:
    """The most heads known to be within the drop, and the next number that is not; the same where
    every number is.
    """
    low = answer.most.constant_heads if answer.most else 0
    counts = (count.constant_heads for count in answer.counts)
    return low, min((count for count in counts if count > low), default=low)


def _run_steps(stored: StoredStudy, *, whole: bool) -> None:
    steps, study, errors = stored.steps.steps, stored.inputs.study, Console(stderr=True)
    with StudyProgress(errors if errors.is_terminal else lambda _: None) as progress:
        run_here(steps if whole else steps[:-1], stored.store, study.execution, progress)
    if whole:
        place_results(stored.store, study.name, steps[-1].reference(stored.store))
