"""The paper's pipeline, from a study to its steps. Every key is known here, and nothing runs.

For each encoder and task, after the inputs in brackets:

    tokenise             []: the task's text in slots
    average              [tokenise]: C, the mean attention over the training text
    train_lambda         [tokenise, average]: λ of heads, for each ranking seed; also on shuffled
                         labels, as a control
    train_frozen_probe   [tokenise]: the probe of methods that read a probe's loss
    score_heads          [tokenise, average, train_frozen_probe]: scores of heads by other methods,
                         for each ranking seed
    constant_outputs, average_by_distance
                         [tokenise]: other substitutes; those without a step are computed in cells
    supplied_matrices    []: substitutes that a user of the library supplied
    probe                [tokenise, substitute, scores of heads]: a cell for each substitute, head
                         order and fraction, with each probe seed
    baseline             [tokenise]: what cells have to beat

A task with ``head: native`` has no probe but the model's own head. Its steps differ in these:

    sweep_heads          [tokenise, average]: scores of heads by effect, in place of score_heads
    joint_effects        [tokenise, average, sweep_heads]: what sets of heads cost together
    answer               [tokenise, substitute, scores of heads]: the head's answers in a cell
    score_answers        [tokenise, answer]: their score, in place of probe
    one_answer           [tokenise]: in place of baseline

``aggregate`` [all of these] comes last, once for the study. The fraction is the share of heads that
stay input-dependent: the first heads of the order become constant, the others stay. Steps with
equal keys are one step.
"""

import sys
from dataclasses import dataclass
from itertools import product

import psutil

from papa.files import sha256_of_file
from papa.ranking.orders import scoring_method
from papa.spec.orders import Cell, partial_counts
from papa.tasks.aggregate import aggregate, command_line
from papa.tasks.cell_steps import baseline_steps, cell_step, constant_heads_by_seeds
from papa.tasks.inputs import StudyInputs
from papa.tasks.pair import Pair
from papa.tasks.pair_steps import PairSteps
from papa.tasks.rank_steps import control_steps, joint_effects_step, ranking_steps
from papa.tasks.step import Step, with_inputs
from papa.tasks.substitutes import SubstituteSource


@dataclass(frozen=True)
class Pipeline:
    """The steps of a study, each once and after its inputs, ``aggregate`` last; and the same by
    what they are for, an entry for each encoder and task.
    """

    steps: tuple[Step, ...]
    pairs: tuple[PairSteps, ...]


def build_pipeline(inputs: StudyInputs) -> Pipeline:
    """Build the steps of a study whose encoders and sources are resolved."""
    study = inputs.study
    pairs = tuple(
        build_pair(Pair(inputs, encoder, task))
        for encoder, task in product(inputs.encoders, study.tasks)
    )
    paper_digest = sha256_of_file(study.reference) if study.reference else None
    report = aggregate.step(
        f"aggregate · {study.name}",
        study=study,
        pairs=pairs,
        paper_digest=paper_digest,
        invocation=(command_line(sys.argv), psutil.Process().create_time()),
    )
    return Pipeline(steps=tuple(with_inputs([report])), pairs=pairs)


def build_pair(pair: Pair) -> PairSteps:
    """Build the steps of one encoder on one task."""
    study = pair.study
    # Where no head is constant, or all are, the order changes nothing: no score is computed.
    orders = study.orders if partial_counts(study.keep, pair.unit_count) else []
    methods = dict.fromkeys(filter(None, map(scoring_method, orders)))
    rankings = {method: ranking_steps(pair, method) for method in methods}
    substitutes: dict[str, SubstituteSource] = {}
    cells: dict[Cell, tuple[Step, ...]] = {}
    for substitute, order, fraction in product(study.substitutes, study.orders, study.keep):
        cell = Cell(pair.label, pair.task.name, substitute.label, order, fraction)
        # Without a constant head the substitute changes nothing, with all heads the order: cells
        # that differ in these alone have one result.
        canonical = cell.canonical(pair.unit_count)
        heads_by_seeds = constant_heads_by_seeds(pair, canonical, substitute, rankings)
        cells[cell] = tuple(
            cell_step(pair, canonical, substitute, heads, seeds)
            for seeds, heads in heads_by_seeds.items()
        )
        # The substitutes in use, which the report and MLflow show.
        for heads in heads_by_seeds.values():
            if heads.substitute is not None:
                substitutes.setdefault(substitute.label, heads.substitute)
    return PairSteps(
        encoder_label=pair.label,
        encoder=pair.encoder,
        task=pair.task,
        text=pair.text,
        cells=cells,
        substitutes=substitutes,
        rankings=rankings,
        baselines=baseline_steps(pair),
        controls=control_steps(pair, rankings.get("lambda", {})),
        frozen_probes=tuple(
            step["frozen_probe"]
            for steps_by_seed in rankings.values()
            for step in steps_by_seed.values()
            if step.arguments.get("frozen_probe")
        ),
        joint_effects=joint_effects_step(pair, rankings),
    )
