"""Which steps score a cell, with some heads constant, and the baselines beside all cells."""

from collections.abc import Mapping

from papa.ranking.orders import draws_of, head_order, scoring_method
from papa.spec import Order, SubstituteSpec, TaskSpec
from papa.spec.orders import SCORES, Cell, constant_count, heads_of_units, without_name
from papa.spec.substitutes import entry_of
from papa.tasks.cell import ConstantHeads
from papa.tasks.head_scores import Rankings
from papa.tasks.native_head import answer, one_answer, score_answers
from papa.tasks.pair import Pair, label_column, native_task, task_of_only
from papa.tasks.probe import baseline, probe
from papa.tasks.step import Step
from papa.tasks.substitute_steps import substitute_source


def constant_heads_by_seeds(
    pair: Pair, cell: Cell, substitute: SubstituteSpec, rankings: Rankings
) -> dict[tuple[int, ...], ConstantHeads]:
    """Return which heads are constant in a canonical cell (``Cell.canonical``), by the probe seeds
    that one step scores.
    """
    heads_by_seeds: dict[tuple[int, ...], ConstantHeads] = {}
    method = scoring_method(cell.order) if cell.order else None
    for seeds, draw in _draws_by_seeds(pair, substitute, cell).items():
        order = without_name(cell.order) if cell.order else None
        if draw and pair.heads_per_unit > 1:
            # Groups are drawn, and a step knows heads alone: it is given their whole order.
            order = SCORES
            draw = _positions_of_heads(pair, cell.order, draw)
        heads_by_seeds[seeds] = ConstantHeads(
            size=(pair.encoder.layers, pair.encoder.heads),
            substitute=substitute_source(pair, substitute, seeds[0]) if cell.constants else None,
            order=order,
            count=constant_count(cell.fraction, pair.head_count),
            score_steps=rankings[method] if method else {},
            draw=draw,
        )
    return heads_by_seeds


def _draws_by_seeds(
    pair: Pair, substitute: SubstituteSpec, cell: Cell
) -> Mapping[tuple[int, ...], tuple[int, ...]]:
    """Return what the order of units is drawn from (``draws_of``), by the probe seeds that one step
    scores: a probe has a step for each seed; a native head, which no seed changes, one for all
    seeds with the same constant heads.
    """
    draws = draws_of(pair.study, cell.order or "first_to_last", pair.heads_per_unit)
    is_drawn = bool(cell.constants) and entry_of(substitute.kind).drawn
    if pair.task.head == "probe" or is_drawn:
        return {(seed,): draw for seeds, draw in draws.items() for seed in seeds}
    return draws


def _positions_of_heads(pair: Pair, order: Order, draw: tuple[int, ...]) -> tuple[int, ...]:
    """Return the positions of all heads in an order of groups, group by group; a position is
    layer · H + head.
    """
    layers = pair.encoder.layers
    groups = head_order(order, None, layers, pair.unit_count // layers, draw)
    return tuple(
        layer * pair.encoder.heads + head
        for layer, head in heads_of_units(groups, pair.heads_per_unit)
    )


def cell_step(
    pair: Pair, cell: Cell, substitute: SubstituteSpec, heads: ConstantHeads, seeds: tuple[int, ...]
) -> Step:
    """Return the step that scores a canonical cell with some of the probe seeds."""
    name = f"{pair.title} · {_condition(cell, pair.head_count)}"
    if seeds != pair.study.probe_seeds:
        name = f"{name} · seed {seeds[0]}"
    if pair.task.head == "native":
        original = ConstantHeads(heads.size)
        return score_answers.step(
            f"score_answers · {name}",
            text=pair.text,
            heads=heads,
            answers=_answer_step(pair, name, heads),
            original_answers=_answer_step(pair, f"{pair.title} · no constant head", original),
            task=_scored_task(pair, "labels", columns=label_column(pair.task)),
            seeds=seeds,
            code=pair.code,
        )
    return probe.step(
        f"probe · {name}",
        encoder=pair.encoder,
        text=pair.text,
        heads=heads,
        task=_scored_task(pair, "probe"),
        trained=heads.substitute is not None and substitute.is_trained,
        seeds=seeds,
        features=pair.study.features,
        code=pair.code,
    )


def _answer_step(pair: Pair, name: str, heads: ConstantHeads) -> Step:
    """Return the step that computes the native head's answers; all metrics of the text share it."""
    code = pair.code if pair.code and pair.code.score else None
    return answer.step(
        f"answer · {name}",
        encoder=pair.encoder,
        text=pair.text,
        heads=heads,
        task=native_task(pair.task),
        code=code,
    )


def baseline_steps(pair: Pair) -> tuple[Step, ...]:
    """Return the steps that score what cells are compared with.

    A probe has one for each seed. A native head has one where labels are scored, the best single
    answer.
    """
    if pair.task.head == "probe":
        return tuple(
            baseline.step(
                pair.name_of("baseline", seed, pair.study.probe_seeds),
                encoder=pair.encoder,
                text=pair.text,
                task=_scored_task(pair, "probe"),
                seeds=(seed,),
                features=pair.study.features,
                code=pair.code,
            )
            for seed in pair.study.probe_seeds
        )
    has_metric = pair.code is not None and pair.code.metric is not None
    if pair.task.columns.label is None or (pair.task.ranks_by_divergence and not has_metric):
        return ()
    return (
        one_answer.step(
            f"one_answer · {pair.title}", text=pair.text, task=_scored_task(pair), code=pair.code
        ),
    )


def _scored_task(pair: Pair, *settings: str, **values: object) -> TaskSpec:
    """Return what of the task decides a score."""
    return task_of_only(pair.task, "metric", "positive", *settings, **values)


def _condition(cell: Cell, head_count: int) -> str:
    """Return what is constant in a canonical cell, in words."""
    if not cell.constants:
        return "no constant head"
    if not cell.order:
        return f"{cell.constants} · every head constant"
    count = constant_count(cell.fraction, head_count)
    return f"{cell.constants} · {cell.order} · {count} of {head_count} heads constant"
