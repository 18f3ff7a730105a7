"""``papa heads``: how many and which heads may become constant within a drop of the score."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from papa.errors import SpecError, joined, printable
from papa.flows.cli import options

if TYPE_CHECKING:
    from pandas import DataFrame

    from papa.scores.drops import MaxDrop
    from papa.tasks.manifest import FinishedStudy


def heads(
    study: options.Finished,
    max_drop: Annotated[
        str | None,
        typer.Option(
            "--max-drop",
            metavar="DROP",
            help="Largest relative drop of the score, such as 0.5% (default: 1%); for a loss in "
            "nats, such as 0.05nats (default: 0.01nats).",
        ),
    ] = None,
    as_json: options.AsJson = False,
    as_tsv: Annotated[
        bool, typer.Option("--tsv", help="Print head scores, one line for each layer.")
    ] = False,
    store: options.StoreAddress = options.DEFAULT_STORE,
    verbose: options.Verbose = False,
) -> None:
    """Show how many and which heads may become constant within a drop of the score."""
    with options.one_sentence(verbose):
        from papa.scores.drops import MaxDrop

        limit = MaxDrop.parse(max_drop, "--max-drop")
        found = options.open_finished(store, study)
        if as_tsv:
            keys = ["encoder", "task", "method"]
            scores = {" · ".join(key): own for key, own in found.heads.groupby(keys, sort=False)}
            if len(scores) != 1:
                raise SpecError(
                    f"study '{found.manifest.study}' has "
                    f"{joined(scores) or 'no head scores'}, and --tsv prints the scores of "
                    f"one method, encoder and task: read heads.parquet in {found.folder}"
                )
            grid = found.heads.pivot(index="layer", columns="head", values="score")
            typer.echo(grid.to_csv(sep="\t", header=False, index=False), nl=False)
            return
        answers = list(_answers(found, limit))
        if as_json:
            document = {
                "study": found.manifest.study,
                "max_drop": limit.share,
                "max_nats": limit.nats,
                "answers": answers,
                "scores": _records(found.heads),
            }
            options.print_json(document)
        else:
            for answer in answers:
                typer.echo("\n".join(map(printable, _lines(answer, limit))))


def _records(frame: DataFrame) -> list[dict[str, Any]]:
    """Rows as JSON has them, without NaN."""
    return frame.astype(object).where(frame.notna(), None).to_dict("records")


def _answers(found: FinishedStudy, max_drop: MaxDrop) -> Iterator[dict[str, Any]]:
    """What a study says, for every encoder, task, kind of constants and head order."""
    from papa.ranking.orders import scored_by
    from papa.reporting.answers import certainty
    from papa.scores.summary import LINE, drops_of_all_lines, heads_at
    from papa.spec.orders import Cell

    agreement = {(one["encoder"], one["task"]): one for one in found.manifest.agreement}
    constant = {Cell.from_row(vars(entry)): entry.constant_heads for entry in found.manifest.cells}
    frame = heads_at(drops_of_all_lines(found.results), constant, max_drop)
    for key, line in frame.groupby(LINE, sort=False):
        ends = {"low": "drop_low", "high": "drop_high"}
        counts = _records(line.drop(columns=[*LINE, "metric"]).rename(columns=ends))
        encoder = found.manifest.encoders[key[0]]
        reason, *_ = [one.pop("reason") for one in counts]
        most = next((one for one in reversed(counts) if one["verdict"] == "within"), None)
        of_lambda = agreement.get(key[:2])
        yield {
            **dict(zip(LINE, key, strict=True)),
            "metric": line["metric"].iloc[0],
            "heads_in_all": encoder.layers * encoder.heads,
            "constant_heads": most and most["constant_heads"],
            "heads": most and most["heads"],
            "reason": reason,
            "certainty": certainty(of_lambda)
            if of_lambda and scored_by(key[3]) == "lambda"
            else "",
            "counts": counts,
        }


def _drop_label(count: dict[str, Any], metric: str) -> str:
    """A drop with the bounds of its interval."""
    from papa.reporting.wording import percent_label
    from papa.scores.drops import perplexity_ratio
    from papa.spec.task import LOSS

    drop, low, high = (count[name] for name in ("drop", "drop_low", "drop_high"))
    bounds = "no example differs"
    if metric == LOSS:
        if high is not None:
            bounds = f"{low:z.3f} to {high:z.3f}"
        return f"{drop:z.3f} nats, perplexity × {perplexity_ratio(drop):.2f} ({bounds})"
    if high is not None:
        bounds = f"{100 * low:z.1f} to {percent_label(high)}"
    return f"{percent_label(drop)} ({bounds})"


def _lines(answer: dict[str, Any], max_drop: MaxDrop) -> Iterator[str]:
    """An answer in lines."""
    from papa.reporting.wording import order_label

    metric = answer["metric"]
    named = (answer["encoder"], answer["task"], answer["constants"], order_label(answer["order"]))
    limit = "" if max_drop.mismatch(metric) else f", within {max_drop.label(metric)}"
    yield f"{' · '.join(named)}{limit} on these validation rows:"
    most = answer["constant_heads"] or 0
    told = {"within": " heads may become constant", "undecided": ": cannot tell"}
    for one in answer["counts"] if not answer["reason"] else ():
        if one["constant_heads"] < most:
            continue
        high, why = one["drop_high"], ""
        if high is not None and one["verdict"] == "undecided":
            fewer = ", but fewer are not known to be within"
            is_within = high <= (max_drop.limit(metric) or 0.0)
            why = fewer if is_within else "; more seeds or rows help"
        yield (
            f"  {one['constant_heads']} of {answer['heads_in_all']}"
            f"{told.get(one['verdict'], ': too many')}: drop {_drop_label(one, metric)}{why}"
        )
        if one["constant_heads"] == most and one["heads"] is None:
            yield "  which ones differs from seed to seed in this head order"
        elif one["constant_heads"] == most:
            yield "  which, layers and heads counted from 0:"
            for layer in dict.fromkeys(layer for layer, _ in one["heads"]):
                own = (str(head) for of, head in one["heads"] if of == layer)
                yield f"    layer {layer}: {', '.join(own)}"
    if answer["reason"]:
        yield f"  the study cannot tell: {answer['reason']}"
    elif not most:
        yield "  no number of heads in the study is known to stay within it"
    if answer["certainty"]:
        yield f"  {answer['certainty']}"
