"""``papa heads``: how many and which heads may become constant within a drop of the score."""

from collections.abc import Iterator
from typing import Annotated, Any, cast

import typer
from pandas import DataFrame

from papa.errors import printable
from papa.flows.cli import options
from papa.ranking.head_scores import LambdaAgreement
from papa.ranking.orders import scoring_method
from papa.reporting.sentences import certainty_sentences, seed_warnings, seeds_differ
from papa.reporting.wording import order_label, percent_label
from papa.scores.drops import MaxDrop, perplexity_ratio
from papa.scores.verdicts import drops_of_all_lines, heads_within
from papa.spec.columns import LINE
from papa.spec.orders import Cell
from papa.spec.task import LOSS
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
    store: options.StoreAddress = options.DEFAULT_STORE,
) -> None:
    """Show how many and which heads may become constant within a drop of the score."""
    with options.one_sentence():
        limit = MaxDrop.parse(max_drop, "--max-drop")
        finished = options.open_finished(store, study)
        answers = list(_answers(finished, limit))
        if as_json:
            document = {
                "study": finished.manifest.study,
                "max_drop": limit.share,
                "max_nats": limit.nats,
                "answers": answers,
                "scores": _records(finished.heads),
            }
            options.print_json(document)
        else:
            advice = "; more probe seeds or validation rows help"
            if not seeds_differ(finished.results):
                advice = "; more validation rows help"
            for answer in answers:
                typer.echo("\n".join(map(printable, _lines(answer, limit, advice))))
            # The lines of an encoder and task share λ's certainty.
            certainties = {
                f"{answer['encoder']} · {answer['task']}: {answer['certainty']}": None
                for answer in answers
                if answer["certainty"]
            }
            for sentence in [*certainties, *seed_warnings(finished.results)]:
                typer.echo(printable(sentence))


def _records(frame: DataFrame) -> list[dict[str, Any]]:
    """Return rows as JSON has them, without NaN."""
    return frame.astype(object).where(frame.notna(), None).to_dict("records")


def _answers(finished: FinishedStudy, max_drop: MaxDrop) -> Iterator[dict[str, Any]]:
    """Yield what a study says, for every encoder, task, kind of constants and head order."""
    manifest = finished.manifest
    agreement = {
        (entry["encoder"], entry["task"]): cast(LambdaAgreement, entry)
        for entry in manifest.agreement
    }
    constant = {Cell.from_row(vars(entry)): entry.constant_heads for entry in manifest.cells}
    frame = heads_within(drops_of_all_lines(finished.results), constant, max_drop)
    for key, line in frame.groupby(LINE, sort=False):
        bounds = {"low": "drop_low", "high": "drop_high"}
        counts = _records(line.drop(columns=[*LINE, "metric"]).rename(columns=bounds))
        encoder = manifest.encoders[key[0]]
        reason, *_ = [count.pop("reason") for count in counts]
        most = next((count for count in reversed(counts) if count["verdict"] == "within"), None)
        of_lambda = agreement.get(key[:2])
        yield {
            **dict(zip(LINE, key, strict=True)),
            "metric": line["metric"].iloc[0],
            "unit": finished.study.unit,
            "heads_in_all": encoder.layers * encoder.heads,
            "constant_heads": most and most["constant_heads"],
            "heads": most and most["heads"],
            "reason": reason,
            "certainty": certainty_sentences(of_lambda)
            if of_lambda and scoring_method(key[3]) == "lambda"
            else "",
            "counts": counts,
        }


def _drop_label(count: dict[str, Any], metric: str) -> str:
    """Return a drop with the bounds of its interval."""
    drop, low, high = (count[name] for name in ("drop", "drop_low", "drop_high"))
    bounds = "no example differs"
    if metric == LOSS:
        if high is not None:
            bounds = f"{low:z.3f} to {high:z.3f}"
        return f"{drop:z.3f} nats, perplexity × {perplexity_ratio(drop):.2f} ({bounds})"
    if high is not None:
        bounds = f"{100 * low:z.1f} to {percent_label(high)}"
    return f"{percent_label(drop)} ({bounds})"


def _lines(answer: dict[str, Any], max_drop: MaxDrop, advice: str) -> Iterator[str]:
    """Yield an answer in lines; ``advice`` ends undecided lines: what would decide them."""
    metric = answer["metric"]
    names = (answer["encoder"], answer["task"], answer["constants"], order_label(answer["order"]))
    limit = "" if max_drop.mismatch(metric) else f", within {max_drop.label(metric)}"
    groups = "" if answer["unit"] == "head" else ", by groups of heads that share keys and values"
    yield f"{' · '.join(names)}{limit} on these validation rows{groups}:"
    most = answer["constant_heads"] or 0
    verdicts = {"within": " heads may become constant", "undecided": ": cannot tell"}
    for count in answer["counts"] if not answer["reason"] else ():
        if count["constant_heads"] < most:
            continue
        high = count["drop_high"]
        why = ""
        if high is not None and count["verdict"] == "undecided":
            fewer = ", but fewer are not known to be within"
            is_within = high <= (max_drop.limit(metric) or 0.0)
            why = fewer if is_within else advice
        yield (
            f"  {count['constant_heads']} of {answer['heads_in_all']}"
            f"{verdicts.get(count['verdict'], ': too many')}: drop "
            f"{_drop_label(count, metric)}{why}"
        )
        if count["verdict"] == "beyond" or count["constant_heads"] == answer["heads_in_all"]:
            continue
        if count["heads"] is None:
            yield "  which ones differs from seed to seed in this head order"
        else:
            yield "  which, layers and heads counted from 0:"
            by_layer: dict[int, list[str]] = {}
            for layer, head in count["heads"]:
                by_layer.setdefault(layer, []).append(str(head))
            for layer, heads in by_layer.items():
                yield f"    layer {layer}: {', '.join(heads)}"
    if answer["reason"]:
        yield f"  the study cannot tell: {answer['reason']}"
    elif not most:
        yield "  no number of heads in the study is known to stay within it"
