"""``papa heads``: how many and which heads may become constant within a drop of the score."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
import typer
from rich.console import Console

from flows.drops import Answer, Count, answers
from papa.errors import SpecError, joined
from papa.ranking.seeds import HeadScores, TrainedLambda
from papa.spec import StudySpec
from papa.spec.head_scores import scores_as_tsv
from papa.spec.orders import Head
from papa.study.score_heads import read_head_scores
from papa.study.store import Store
from papa.study.stored import StoredStudy


def show_heads(study: StudySpec, store: Store, max_drop: float, *, as_json: bool) -> None:
    """Print what a study's finished cells say of a drop."""
    stored = StoredStudy(study, store)
    if not stored.cells:
        raise SpecError(stored.nothing_found())
    found = answers(stored, max_drop)
    if as_json:
        document = {
            "study": study.name,
            "max_drop": max_drop,
            "answers": [document_of(answer) for answer in found],
            "scores": [*_scores_of(stored)],
        }
        typer.echo(json.dumps(document, indent=2, ensure_ascii=False))
        return
    console = Console()
    for answer in found:
        lines = [text_of(answer, max_drop), *_unmeasured(stored, answer)]
        console.print("\n".join(lines), highlight=False, markup=False)


def show_scores(study: StudySpec, store: Store) -> None:
    """Print a score for every head, a line for each layer, as ``papa.load_scores`` reads them: λ or
    that of another method, a mean over seeds; or the study's own.
    """
    found = {
        f"{'λ' if method == 'lambda' else method} of {' · '.join(pair)}": scores
        for pair, method, scores in _scored(StoredStudy(study, store))
    }
    if not study.scores and len(found) != 1:
        raise SpecError(
            f"study '{study.name}' has finished {joined(found) or 'no scores of heads'}: --tsv "
            "prints those of one method on one encoder and task; cut the study with --set, such "
            "as --set 'tasks=[cola]' or --set 'orders=[lambda]'"
        )
    given = [np.array(scores.values) for scores in study.scores]
    typer.echo(scores_as_tsv([*given, *(scores.mean for scores in found.values())][0]))


def _scored(
    stored: StoredStudy,
) -> Iterator[tuple[tuple[str, str], str, HeadScores | TrainedLambda]]:
    """The finished scores of heads: of which encoder on which task, and by which method."""
    for part in stored.steps.parts:
        for method, by_seed in part.rankings.items():
            if all(step in stored.found for step in by_seed.values()):
                rankings = {seed: stored.found[step] for seed, step in by_seed.items()}
                yield part.pair, method, read_head_scores(method, rankings)


def _scores_of(stored: StoredStudy) -> Iterator[dict[str, Any]]:
    """Scores of heads as JSON has them, layer by layer, with both ends of their 95 % intervals."""
    for (encoder, task), method, scores in _scored(stored):
        low, high = scores.interval
        lists = {
            name: [[*map(_number, row)] for row in values.tolist()]
            for name, values in {"mean": scores.mean, "low": low, "high": high}.items()
        }
        yield {"encoder": encoder, "task": task, "method": method, **lists}


def _unmeasured(stored: StoredStudy, answer: Answer) -> Iterator[str]:
    """The heads of cells that are not finished, where no scores decide on them."""
    line = answer.encoder, answer.task, answer.constants, answer.order
    for cell, (step, *others) in stored.steps.cells.items():
        own = (cell.encoder, cell.task, cell.constants, cell.order) == line and not stored.has(cell)
        if own and step.count and not step.rankings:
            heads, *more = {tuple(sorted(one.heads({}))) for one in (step, *others)}
            if not more:
                yield f"  {step.count} of {answer.heads_in_all}: not measured"
                yield from _listed(heads)


def document_of(answer: Answer) -> dict[str, Any]:
    """An answer as JSON has it."""
    most = answer.most
    own = ("encoder", "task", "constants", "order", "heads_in_all")
    return {
        **{name: getattr(answer, name) for name in own},
        "constant_heads": most and most.constant_heads,
        "heads": most and most.heads,
        "key_heads": answer.key_heads,
        "reason": answer.reason,
        "certainty": answer.certainty,
        "missing_cells": answer.missing,
        "counts": [*map(_count, answer.counts)],
    }


def _count(count: Count) -> dict[str, Any]:
    drop = count.drop
    ends = {"drop": drop.mean, "drop_low": drop.low, "drop_high": drop.high}
    return asdict(count) | {name: _number(value) for name, value in ends.items()}


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


def text_of(answer: Answer, max_drop: float) -> str:
    """An answer in lines."""
    from papa.reporting.wording import order_label

    most = answer.most
    of = " · ".join((answer.encoder, answer.task, answer.constants, order_label(answer.order)))
    lines = [f"{of}, within a drop of {100 * max_drop:g} % on these validation rows:"]
    if most is not None:
        lines += [
            f"{_of(most, answer)} heads may become constant: {_drop(most)}",
            *_listed(most.heads),
        ]
        if answer.key_heads:
            lines.append("  {} of {} heads of keys need no cache then".format(*answer.key_heads))
    elif answer.reason:
        lines.append(f"  the study cannot tell: {answer.reason}")
    elif not answer.counts:
        lines.append("  the study cannot tell: no cell with constant heads is finished")
    else:
        lines.append("  no number of heads in the study is known to stay within it")
    for count in answer.undecided:
        fewer = count.drop.high <= max_drop
        advice = ", but fewer are not known to be within" if fewer else "; more seeds or rows help"
        lines.append(f"{_of(count, answer)}: cannot tell: {_drop(count)}{advice}")
    beyond = [count for count in answer.counts if count.verdict == "beyond"]
    lines += [f"{_of(count, answer)}: too many: {_drop(count)}" for count in beyond]
    lines += [f"  {answer.certainty}"] if answer.certainty else []
    if answer.missing:
        missing = f"{answer.missing} of its cells are not finished"
        lines.append(f"  {missing}: 'papa run' on the study goes on")
    return "\n".join(lines)


def tried_line(answer: Answer, constant_heads: int) -> str:
    """What was found of a number of heads, in a line."""
    (count,) = (count for count in answer.counts if count.constant_heads == constant_heads)
    return f"{_of(count, answer)}: {count.verdict}: {_drop(count)}"


def _of(count: Count, answer: Answer) -> str:
    return f"  {count.constant_heads} of {answer.heads_in_all}"


def _drop(count: Count) -> str:
    from papa.reporting.wording import percent_label, range_label

    return (
        f"drop {percent_label(count.drop.mean)} "
        f"({range_label(count.drop.low, count.drop.high, percent=True)})"
    )


def _listed(constant: tuple[Head, ...] | None) -> list[str]:
    if constant is None:
        return ["  which ones differs from seed to seed in this head order"]
    layers: dict[int, list[str]] = {}
    for layer, head in constant:
        layers.setdefault(layer, []).append(str(head))
    listed = [f"    layer {layer}: {', '.join(heads)}" for layer, heads in layers.items()]
    return ["  which, layers and heads counted from 0:", *listed]
