"""The paper's pipeline, from a study to its steps. Every key is known here, and nothing runs.

For each encoder and task, after the inputs in brackets:

    tokenise
    average                       [tokenise]
    train_lambda                  [tokenise, average]: λ of heads, for each ranking seed; also on
                                  shuffled labels, as a control
    train_frozen_probe            [tokenise]: the probe of methods that read a probe's loss
    score_heads                   [tokenise, average, train_frozen_probe]: scores of heads by other
                                  methods, for each ranking seed
    sweep_heads                   [tokenise, average]: likewise by effect, of a native head
    other substitutes             [tokenise], where the encoder has to run for them
    probe, or for a native head answer and score_answers
                                  [tokenise, substitute, scores of heads]: a cell for each
                                  substitute, head order and fraction
    baseline or one_answer        [tokenise]
    joint_effects                 [tokenise, average, sweep_heads]: of a native head

In the end: aggregate, of all. The fraction is the share of heads that stay input-dependent: the
first heads of the order become constant, the others stay. Steps with equal keys are one step.
"""

import sys
from dataclasses import dataclass
from itertools import product

import psutil

from papa.files import sha256_of_file
from papa.ranking.orders import scored_by
from papa.spec.orders import SCORES, Cell, constant_count, partial_counts, without_name
from papa.tasks.aggregate import aggregate, command_line
from papa.tasks.cell import ConstantHeads
from papa.tasks.cell_steps import baseline_steps, cell_step, drawn_groups, draws_by_seeds
from papa.tasks.head_scores import Rankings
from papa.tasks.inputs import StudyInputs
from papa.tasks.pair import Pair
from papa.tasks.pair_steps import PairSteps
from papa.tasks.rank_steps import control_steps, joint_effects_step, ranking_steps
from papa.tasks.step import Step, with_inputs
from papa.tasks.substitute_steps import substitute_source
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
    orders = study.orders if partial_counts(study.keep, pair.units) else []
    methods = filter(None, map(scored_by, orders))
    rankings: Rankings = {method: ranking_steps(pair, method) for method in methods}
    substitutes: dict[str, SubstituteSource] = {}
    cells: dict[Cell, tuple[Step, ...]] = {}
    for substitute, order, fraction in product(study.substitutes, study.orders, study.keep):
        cell = Cell(pair.label, pair.task.name, substitute.label, order, fraction)
        # Without a constant head the substitute changes nothing, with all heads the order: cells
        # that differ in these alone have one result.
        canonical = cell.canonical(pair.units)
        method = scored_by(order) if canonical.order else None
        scored: list[Step] = []
        for seeds, draw in draws_by_seeds(pair, substitute, canonical).items():
            source = substitute_source(pair, substitute, seeds[0]) if canonical.constants else None
            order_of_heads = without_name(order) if canonical.order else None
            if draw and pair.heads_per_unit > 1:
                order_of_heads = SCORES
                draw = drawn_groups(pair, order, draw)
            heads = ConstantHeads(
                size=(pair.encoder.layers, pair.encoder.heads),
                substitute=source,
                order=order_of_heads,
                count=constant_count(canonical.fraction, pair.heads),
                score_steps=rankings[method] if method else {},
                draw=draw,
            )
            scored.append(cell_step(pair, canonical, substitute, heads, seeds))
            if source:
                substitutes.setdefault(substitute.label, source)
        cells[cell] = tuple(scored)
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
