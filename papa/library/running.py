"""Run the pipeline's steps in this process, with an encoder that is in memory."""

from collections.abc import Sequence

from papa.library.encoder import Encoder
from papa.progress import Bars
from papa.storage.artifacts import ArtifactReference
from papa.storage.store import Store
from papa.tasks.inputs import StudyInputs
from papa.tasks.run import run_here
from papa.tasks.step import Step


def run_steps(
    steps: Sequence[Step], store: Store, encoder: Encoder, inputs: StudyInputs, progress: bool
) -> dict[Step, ArtifactReference]:
    """Run a study's steps with the encoder that is loaded; return the artifact of each."""
    store.make()
    loaded = {encoder.reference: encoder.encoder} if encoder.encoder else {}
    run_here(steps, store, inputs.study.execution, Bars(progress), loaded)
    return {step: step.reference(store) for step in steps}
