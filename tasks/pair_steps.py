"""The steps of one encoder on one task, by what they are for."""

from collections.abc import Mapping
from dataclasses import dataclass

from papa.models.reference import EncoderReference
from papa.ranking.head_scores import HeadScores, LambdaAgreement, TrainedLambda
from papa.spec import StudySpec, TaskSpec
from papa.spec.orders import UNIT_LABELS, Cell
from papa.storage.artifacts import ArtifactReference
from papa.tasks.head_scores import Rankings, StepsBySeed, read_head_scores
from papa.tasks.step import Step
from papa.tasks.substitutes import SubstituteSource

Artifacts = Mapping[Step, ArtifactReference]
"""The finished artifact of every step."""


@dataclass(frozen=True)
class PairSteps:
    """The steps of one encoder on one task, by what they are for.

    Attributes:
        cells: What scores each cell: a step for each seed; of a native head, which no seed changes,
            one for all seeds with the same constant heads. Cells that share a result share steps.
        substitutes: The substitutes that cells use, by label.
        rankings: What computes head scores.
        baselines: Of a probe a step for each seed; of a native head one step, none without labels.
        controls: λ trained on shuffled labels; {} without a control.
        frozen_probes: The probes that methods of scoring heads read. Nothing reads this field: it
            makes them inputs of ``aggregate``, where ``head_orders`` adds up the seconds they took.
        joint_effects: What compares the effects of sets of heads with those of their heads; None
            of a probe, and where no order follows effects.
    """

    encoder_label: str
    encoder: EncoderReference
    task: TaskSpec
    text: Step
    cells: Mapping[Cell, tuple[Step, ...]]
    substitutes: Mapping[str, SubstituteSource]
    rankings: Rankings
    baselines: tuple[Step, ...]
    controls: StepsBySeed
    frozen_probes: tuple[Step, ...]
    joint_effects: Step | None

    @property
    def names(self) -> tuple[str, str]:
        """The encoder's label and the task's name."""
        return self.encoder_label, self.task.name

    @property
    def used_average(self) -> Step | None:
        """What averages over the task's own text, where a cell uses it."""
        substitute = self.substitutes.get("average")
        return substitute.source if substitute else None

    def head_scores(self, artifacts: Artifacts) -> dict[str, HeadScores | TrainedLambda]:
        """Return the head scores that its rankings computed, by method."""
        controls = {seed: artifacts[step] for seed, step in self.controls.items()}
        scores_by_method = {}
        for method, steps_by_seed in self.rankings.items():
            by_seed = {seed: artifacts[step] for seed, step in steps_by_seed.items()}
            scores_by_method[method] = read_head_scores(method, by_seed, controls)
        return scores_by_method

    def lambda_agreement(self, trained: TrainedLambda, study: StudySpec) -> LambdaAgreement:
        """Return how much the orders by λ of several seeds agree, of this encoder and task."""
        return {
            **trained.agreement(study.keep),
            "encoder": self.encoder_label,
            "task": self.task.name,
            "objective": _objective(self.task),
            "label_free": self.task.ranks_by_divergence,
            "units": UNIT_LABELS[study.unit],
        }


def _objective(task: TaskSpec) -> str:
    """Return what λ of a native head is trained to keep low, in words."""
    if task.head == "probe":
        return ""
    # It imports transformers, which takes longer than all else here.
    from papa.native.losses import loss_of_task

    return loss_of_task(task).objective
