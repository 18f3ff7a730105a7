"""``papa heads``: how many and which heads may become constant within a drop of the score."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import typer

from papa.errors import SpecError, joined
from papa.spec.head_scores import scores_as_tsv
from papa.spec.orders import Head, needs_lambda
from papa.study.manifest import FinishedStudy

if TYPE_CHECKING:
    from pandas import DataFrame

_LINE = ["encoder", "task", "constants", "order"]


def parse_share(text: str) -> float:
    """A share such as ``1%`` or ``0.01``."""
    try:
        share = float(text.strip().removesuffix("%")) / (100 if "%" in text else 1)
    except ValueError:
        share = math.nan
    if not 0 <= share < 1:
        raise SpecError(
            f"--max-drop {text}: give a percentage such as 1%, or a share below 1 such as 0.01"
        )
    return share


def show_heads(found: FinishedStudy, max_drop: float, *, as_json: bool) -> None:
    """Print what a study says of a relative drop that is acceptable."""
    answers = list(_answers(found, max_drop))
    if as_json:
        document = {
            "study": found.manifest.study,
            "max_drop": max_drop,
            "answers": answers,
            "scores": [*_scores(found)],
        }
        typer.echo(json.dumps(document, indent=2, ensure_ascii=False))
        return
    for answer in answers:
        typer.echo("\n".join(_lines(answer, max_drop)))


def show_scores(found: FinishedStudy) -> None:
    """Print a score for every head, a line for each layer, as ``papa.load_scores`` reads them."""
    frames = {" · ".join(key): own for key, own in _by_method(found.heads)}
    if len(frames) != 1:
        raise SpecError(
            f"study '{found.manifest.study}' has {joined(frames) or 'no scores of heads'}: --tsv "
            "prints those of one method on one encoder and task; heads.parquet in "
            f"{found.folder} holds all"
        )
    (own,) = frames.values()
    typer.echo(scores_as_tsv(_grid(own, "score")))


def _answers(found: FinishedStudy, max_drop: float) -> Iterator[dict[str, Any]]:
    """What a study says, for every encoder, task, kind of constants and head order."""
    from papa.reporting.answers import certainty
    from papa.scores.drops import heads_at

    agreement = {(one["encoder"], one["task"]): one for one in found.manifest.agreement}
    frame = heads_at(found.summary, found.constant_heads, max_drop)
    for key, line in frame.groupby(_LINE, sort=False):
        encoder, counts = found.encoder(key[0]), line.to_dict("records")
        most = next((one for one in reversed(counts) if one["verdict"] == "within"), None)
        heads, of_lambda = most and most["heads"], agreement.get(key[:2])
        yield {
            **dict(zip(_LINE, key, strict=True)),
            "heads_in_all": encoder.layers * encoder.heads,
            "constant_heads": most and most["constant_heads"],
            "heads": heads,
            "key_heads": encoder.key_heads
            and heads
            and _whole_groups(heads, encoder.heads // encoder.key_heads),
            "reason": counts[0]["reason"],
            "certainty": certainty(of_lambda) if of_lambda and needs_lambda(key[3]) else "",
            "counts": [
                {
                    **{name: one[name] for name in ("constant_heads", "fraction")},
                    "drop": _number(one["drop"]),
                    "drop_low": _number(one["low"]),
                    "drop_high": _number(one["high"]),
                    "verdict": one["verdict"],
                    "heads": one["heads"],
                }
                for one in counts
            ],
        }


def _whole_groups(heads: Sequence[Head], sharing: int) -> int:
    """Of how many heads of keys every query head is among ``heads``: they need no cache then."""
    groups = [(layer, head // sharing) for layer, head in heads]
    return sum(groups.count(group) == sharing for group in set(groups))


def _lines(answer: dict[str, Any], max_drop: float) -> Iterator[str]:
    """An answer in lines."""
    from papa.reporting.wording import order_label

    named = (*(answer[name] for name in _LINE[:3]), order_label(answer["order"]))
    yield f"{' · '.join(named)}, within a drop of {100 * max_drop:g} % on these validation rows:"
    most, counts = answer["constant_heads"] or 0, answer["counts"]
    for one in counts:
        if one["constant_heads"] == most:
            yield f"{_of(one, answer)} heads may become constant: {_drop(one)}"
            yield from _listed(one["heads"])
    if answer["key_heads"]:
        yield f"  {answer['key_heads']} whole heads of keys need no cache then"
    if answer["reason"]:
        yield f"  the study cannot tell: {answer['reason']}"
    elif not most:
        yield "  no number of heads in the study is known to stay within it"
    for one in counts:
        if one["constant_heads"] > most and one["verdict"] == "undecided" and not answer["reason"]:
            fewer = one["drop_high"] <= max_drop
            why = ", but fewer are not known to be within" if fewer else "; more seeds or rows help"
            yield f"{_of(one, answer)}: cannot tell: {_drop(one)}{why}"
    for one in counts:
        if one["verdict"] == "beyond":
            yield f"{_of(one, answer)}: too many: {_drop(one)}"
    if answer["certainty"]:
        yield f"  {answer['certainty']}"


def _of(count: dict[str, Any], answer: dict[str, Any]) -> str:
    return f"  {count['constant_heads']} of {answer['heads_in_all']}"


def _drop(count: dict[str, Any]) -> str:
    from papa.reporting.wording import percent_label, range_label

    ends = range_label(count["drop_low"], count["drop_high"], percent=True)
    return f"drop {percent_label(count['drop'])} ({ends})"


def _listed(constant: Sequence[Head] | None) -> Iterator[str]:
    if constant is None:
        yield "  which ones differs from seed to seed in this head order"
        return
    yield "  which, layers and heads counted from 0:"
    layers: dict[int, list[str]] = {}
    for layer, head in constant:
        layers.setdefault(layer, []).append(str(head))
    for layer, heads in layers.items():
        yield f"    layer {layer}: {', '.join(heads)}"


def _scores(found: FinishedStudy) -> Iterator[dict[str, Any]]:
    """Scores of heads as JSON has them, layer by layer, with both ends of their 95 % intervals."""
    for (encoder, task, method), own in _by_method(found.heads):
        lists = {
            name: [[*map(_number, row)] for row in _grid(own, column).tolist()]
            for name, column in {"mean": "score", "low": "low", "high": "high"}.items()
        }
        yield {"encoder": encoder, "task": task, "method": method, **lists}


def _by_method(heads: DataFrame) -> list[tuple[Any, DataFrame]]:
    return list(heads.groupby(["encoder", "task", "method"], sort=False))


def _grid(own: DataFrame, column: str) -> Any:
    """A number for every head, [layers, heads]."""
    return own.pivot(index="layer", columns="head", values=column).to_numpy()


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value
