"""Joint effects: what the first heads of the order by ``effect`` cost a native head together, and
what pairs of its first 16 do.
"""

from collections.abc import Iterable

import pandas

from papa.models.reference import EncoderReference
from papa.scores.summary import read_table
from papa.spec import RankingSpec, TaskSpec
from papa.spec.orders import Unit
from papa.storage.artifacts import verified
from papa.tasks.cell import ConstantHeads
from papa.tasks.context import Context
from papa.tasks.pair_steps import Artifacts, PairSteps
from papa.tasks.rank import open_native_loss
from papa.tasks.step import Step, stage
from papa.text.corpus import open_corpus

EFFECTS = "effects.csv"


@stage("joint_effects", version=3)
def joint_effects(
    context: Context,
    encoder: EncoderReference,
    text: Step,
    average: Step,
    task: TaskSpec,
    ranking: RankingSpec,
    heads: ConstantHeads,
    keep: tuple[float, ...],
    unit: Unit = "head",
) -> None:
    """Compute the loss with sets of heads constant, and with each of their heads alone: for each
    share in ``keep`` the first heads of the order.

    On validation texts, because heads that were chosen for their small effect on training texts
    cost more on others: only there is the sum of their effects without bias. In: the tokenised
    text, the task's own average, the effects of single heads, and the model's files. Out: a row for
    each set. Where: a worker.
    """
    from papa.heads.constants import ConstantMatrices
    from papa.native.scores import native_joint_effects

    corpus = open_corpus(context.artifacts[text])
    native = open_native_loss(context, encoder, corpus, task, unit, "validation")
    constants = ConstantMatrices.load(context.artifacts[average])
    order = heads.units_in_order(context.artifacts)
    effects = native_joint_effects(native, constants, order, keep, ranking.rows, context.progress)
    with context.published() as folder:
        effects.to_csv(folder / EFFECTS, index=False)


def joint_effects_table(
    pairs: Iterable[PairSteps], artifacts: Artifacts
) -> pandas.DataFrame | None:
    """Return the frame of ``joint_effects.csv``; None where no pair has joint effects."""
    frames = [
        read_table(verified(artifacts[pair.joint_effects], EFFECTS) / EFFECTS).assign(
            encoder=pair.encoder_label, task=pair.task.name
        )
        for pair in pairs
        if pair.joint_effects
    ]
    if not frames:
        return None
    table = pandas.concat(frames, ignore_index=True)
    names = ["encoder", "task", "fraction", "pair"]
    return table[[*names, *table.columns.drop(names)]]
