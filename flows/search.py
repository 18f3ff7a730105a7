"""What ``papa export --max-drop`` tries between the fractions of a study: numbers of constant
heads, by bisection, in this process.
"""

from __future__ import annotations

from rich.console import Console

from flows.drops import Answer, answers
from flows.heads import tried_line
from flows.progress import StudyProgress
from flows.studies import save_study
from flows.terminal import say
from papa.spec import StudySpec
from papa.spec.orders import needs_lambda
from papa.study.here import run_here
from papa.study.store import Store
from papa.study.stored import StoredStudy


def search(
    part: StudySpec, store: Store, max_drop: float, answer: Answer
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
        answer = _measured(part, store, max_drop)
        say(console, tried_line(answer, count))
        tried += 1
        low, high = _gap(answer)
    say(console, f"{tried} tried: each may be within by luck, so confirm the number on other rows.")
    save_study(store, part)
    # The report refers to what was tried, so that 'papa prune' keeps it.
    _run(StoredStudy(part, store), whole=True)
    return part, answer


def _gap(answer: Answer) -> tuple[int, int]:
    """The most heads known to be within the drop, and the next number that is not; the same where
    every number is.
    """
    low = answer.most.constant_heads if answer.most else 0
    counts = (count.constant_heads for count in answer.counts)
    return low, min((count for count in counts if count > low), default=low)


def _measured(part: StudySpec, store: Store, max_drop: float) -> Answer:
    _run(StoredStudy(part, store), whole=False)
    (answer,) = answers(StoredStudy(part, store), max_drop)
    return answer


def _run(stored: StoredStudy, *, whole: bool) -> None:
    steps, study, errors = stored.steps.steps, stored.inputs.study, Console(stderr=True)
    with StudyProgress(errors if errors.is_terminal else lambda _: None) as progress:
        run_here(steps if whole else steps[:-1], stored.store, study.execution, progress)
