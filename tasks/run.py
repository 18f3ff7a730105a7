"""Run a step once: where its artifact is not complete, and in one process at a time.

A flow runs steps on the workers of a pool; the library, and tests, run them in this process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from papa.errors import DamagedError
from papa.models.reference import EncoderReference
from papa.progress import Progress, Reporter
from papa.spec import ExecutionSpec
from papa.storage import artifacts
from papa.storage.locks import claimed, in_use
from papa.storage.store import Store
from papa.tasks.context import Context
from papa.tasks.step import Step, StepGroup, group_by_seed
from papa.worker import Worker

if TYPE_CHECKING:
    from papa.models.encoder import Encoder
    from papa.workers import Executor


@dataclass(eq=False)
class Session:
    """What the steps of one run share.

    Attributes:
        store: Where artifacts lie: the cache.
        executor: Runs functions on workers, or in this process.
        execution: Settings that change results by rounding alone.
        reporter: Shows which steps run.
        repaired_keys: Keys of steps whose damaged artifacts this run has computed again.
    """

    store: Store
    executor: Executor
    execution: ExecutionSpec
    reporter: Reporter
    repaired_keys: set[str] = field(default_factory=set)


def run_once(group: StepGroup, session: Session, reported: DamagedError | None = None) -> bool:
    """Run the steps of a group that are not complete; return whether there was something to do.

    Metadata and the sizes of files tell, before any lock, whether an artifact is complete. Damage
    inside files shows when a step reads its input, and raises a DamagedError: the input is computed
    again, once a run, then the step. If the input is damaged still, the error is raised.
    ``reported`` is the error of another step that read an artifact of this group.
    """
    store = session.store
    missing = [step for step in group.steps if reported or not step.is_complete(store)]
    if not missing:
        return False
    # An input that another step repairs while this one runs may be repaired once more.
    repaired_before = set(session.repaired_keys)
    lock = f"{group.first.stage.name}-{group.first.group_key}"

    def report_waiting() -> None:
        session.reporter.note(group.name, "waits for another run that works on it")

    try:
        with claimed(store, lock, report_waiting, lambda: session.executor.closed):
            _compute(missing, session, reported)
    except DamagedError as error:
        damaged_input = next(
            (needed for needed in group.inputs if needed.folder(store) == error.address), None
        )
        if damaged_input is None or damaged_input.key in repaired_before:
            raise
        # Another step that reads the input may be computing it: this one waits for that.
        run_once(StepGroup((damaged_input,)), session, error)
        run_once(group, session)
        if reported:
            # The first try removed the artifact, so the second found no damage to note.
            session.repaired_keys |= {step.key for step in missing}
    return True


def _compute(missing: Sequence[Step], session: Session, reported: DamagedError | None) -> None:
    """Compute steps under their lock, but for those that another run finished meanwhile."""
    store = session.store
    damage_of = {step: _damage_of(step, session, reported) for step in missing}
    steps = [step for step in missing if damage_of[step] or not step.is_complete(store)]
    for step in steps:
        damage_of_step = damage_of[step]
        if damage_of_step:
            artifacts.remove(step.folder(store))
            session.reporter.note(step.name, f"computed again: {damage_of_step.problem}")
    if steps:
        with session.reporter.running(StepGroup(tuple(steps)).name) as progress:
            _run_bodies(tuple(steps), session, progress)
    session.repaired_keys |= {step.key for step in steps if damage_of[step]}


def _damage_of(step: Step, session: Session, reported: DamagedError | None) -> DamagedError | None:
    """Return what is wrong with a step's artifact; what was reported may be repaired since."""
    if reported and step.key not in session.repaired_keys:
        return reported
    # An artifact with metadata that is not complete (Step.is_complete) is damaged.
    if artifacts.has_metadata(step.folder(session.store)):
        return session.store.damage(step.stage.name, step.key)
    return None


def _run_bodies(steps: tuple[Step, ...], session: Session, progress: Progress) -> None:
    """Run the body of steps, which differ in their seed alone, where ``Stage.runs_on`` says."""
    stage = steps[0].stage
    context = Context(steps, session.store, session.execution, progress, workers=session.executor)
    if stage.runs_on == "driver thread":
        stage.body(context, **steps[0].arguments)
        return
    on_drivers_machine = stage.runs_on == "driver's machine"
    context.call_worker(run_body, progress=progress, on_drivers_machine=on_drivers_machine)


def run_body(context: Context) -> None:
    """Run the body of steps, on a worker."""
    stage = context.step.stage
    arguments = dict(context.step.arguments)
    if stage.by_seed:
        arguments["seeds"] = tuple(seed for step in context.steps for seed in step["seeds"])
    stage.body(context, **arguments)


def run_here(
    steps: Iterable[Step],
    store: Store,
    execution: ExecutionSpec,
    reporter: Reporter,
    loaded: Mapping[EncoderReference, Encoder] | None = None,
) -> None:
    """Run steps, each after its inputs, in this process, one after the other; the first error is
    raised. ``loaded`` are encoders that are already in memory.
    """
    session = Session(store, Worker(execution.device, loaded), execution, reporter)
    with in_use(store):
        for group in group_by_seed(steps):
            run_once(group, session)
