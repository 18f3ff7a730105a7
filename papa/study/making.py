"""Making a step's artifact: whoever asks first computes it, damage is made again, others wait."""

from __future__ import annotations

from papa.errors import DamagedError
from papa.storage.artifacts import remove
from papa.study.locks import claimed
from papa.study.step import Session, Step


def make(step: Step, session: Session, damage: DamagedError | None = None) -> bool:
    """Run a step unless its artifact is complete, and once more where what it reads turns out to be
    damaged.

    Whether it is complete is asked before any lock: a step that is finished needs none.
    What lies in the store is looked at before it counts as complete; damage beyond that is found by
    what fetches and reads it. The damaged artifact is made again first, once a run, under its own
    key.

    Args:
        damage: what is known to be wrong with its artifact.

    Returns:
        Whether there was something to do.

    Raises:
        PapaError: it, or what it reads, cannot be made.
    """
    if damage is None and step.is_complete(session.store):
        return False
    try:
        _make(step, session, damage)
    except DamagedError as error:
        broken = next(
            (need for need in step.needs if need.folder(session.store) == error.address), None
        )
        if broken is None:
            raise
        make(broken, session, error)
        _make(step, session, damage)
    return True


def _make(step: Step, session: Session, damage: DamagedError | None) -> None:
    store = session.store
    what = f"{step.stage}-{step.key}"
    with claimed(
        store, what, lambda: session.reporter.waits(step.name), lambda: session.pool.closed
    ):
        if damage and step.key not in session.made_again:
            session.made_again.add(step.key)
            remove(step.folder(store))
            session.reporter.damaged(step.name, damage.what)
        # Asked again, as another run may have finished the step while this one waited.
        if not step.is_complete(store):
            if unsound := step.clear(store):
                session.reporter.damaged(step.name, unsound.what)
            with session.reporter.running(step.name, step.flops) as progress:
                step.run(session, progress)
