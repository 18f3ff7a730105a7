"""A study that is finished already: nothing of it runs, so Prefect has nothing to show."""

from contextlib import closing, suppress
from functools import partial

from papa.errors import PapaError
from papa.flows.check import Checked
from papa.flows.progress import StudyProgress
from papa.storage.artifacts import digest_of, read_metadata, verified
from papa.storage.locks import in_use
from papa.storage.store import Store
from papa.tasks.mlflow import Tracking
from papa.tasks.step import group_by_seed
from papa.tasks.study_files import place_results


def is_finished(checked: Checked, store: Store) -> bool:
    """Return whether every step of a study is finished, and its folder holds undamaged results."""
    if checked.missing:
        return False
    folder = store.study_path(checked.inputs.study.name)
    with suppress(PapaError):
        results = checked.pipeline.steps[-1].reference(store)
        verified(folder)
        return digest_of(read_metadata(folder)) == results.digest
    return False


def publish_finished(checked: Checked, store: Store, progress: StudyProgress) -> str:
    """Write what MLflow and other machines of the store lack of a finished study; return the
    address of its page in MLflow.
    """
    study = checked.inputs.study
    steps = checked.pipeline.steps
    results = steps[-1].reference(store)
    report_failure = partial(progress.note, study.name)
    with (
        closing(progress.bar),
        in_use(store, study.name),
        Tracking(store, study, checked.pipeline, report_failure) as tracking,
    ):
        place_results(store, study.name, results)
        for step in steps:
            tracking.log_step(step)
        tracking.log_results(results)
        for group in group_by_seed(steps):
            progress.finished(group.name, computed=False, steps=len(group.steps))
    store.remove_study_file(f"{study.name}.failed")
    return tracking.link
