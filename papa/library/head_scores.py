"""A score for every head, in one frame by any method; and the heads that become constant by it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas
from torch import nn
from transformers import PreTrainedTokenizerBase

from papa.errors import DataError, SpecError, meant
from papa.library.ablating import (
    NOTHING_COUNTS,
    ablated,
    answers,
)
from papa.library.batches import (
    Batch,
    Data,
    batches_of,
    check_answering,
    mini_batches,
    single_texts,
)
from papa.library.encoder import Encoder, check_loaded
from papa.library.gating import causal_gates
from papa.library.in_memory_scores import (
    effects,
    every_head,
    frame_of,
    lambda_of,
    numbered,
)
from papa.library.renamed import formerly
from papa.library.running import run_steps
from papa.library.substitutes import constants_for, substitute_for
from papa.library.tasks import Task, as_list, study_inputs
from papa.ranking.given import score_of_each
from papa.ranking.orders import HEAD_SCORES, head_order
from papa.ranking.seeds import HeadScores
from papa.scores.custom import CustomScore
from papa.spec.orders import Head, read_scores
from papa.spec.orders import constant_heads as first_heads
from papa.storage.store import Store
from papa.tasks.pipeline import build_pipeline
from papa.tasks.rank import read_head_scores
from papa.tasks.step import with_inputs
from papa.tasks.substitutes import supplied_matrices

METHODS = ("lambda", "effect", "causal_gates")
"""That score heads of a model that somebody holds."""


@formerly(
    by="method",
    constants="substitute",
    seeds="ranking_seeds",
    made_from="substitute_data",
)
def head_scores(
    model: Encoder | nn.Module,
    data: Any,
    *,
    task: Task | None = None,
    method: str = "lambda",
    substitute: Any = "average",
    ranking_seeds: Sequence[int] = (0, 1, 2),
    rows: int | None = None,
    epochs: int | None = None,
    learning_rate: float | None = None,
    evaluations: int = 2_000,
    substitute_data: Data = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    score: CustomScore | None = None,
    progress: bool = True,
) -> pandas.DataFrame:
    """A frame of head scores.

    Of what ``load_encoder`` gives, on the training split, as a study has them to the bit: "lambda"
    (paper, Section 3.2) or another method of docs/method.md.

    Of a model that you hold, by its own answers, without labels: "effect", what is lost with one
    head alone replaced, with intervals over texts (``attrs["measure"]``: the loss of a language
    model, the divergence of other logits, both in nats, or the agreement of masked words without
    ``labels``; 1 - the cosine of mean-pooled embeddings; what ``score`` falls); and "lambda",
    trained to keep that small. "causal_gates" tell facilitating, interfering and irrelevant heads
    of a language model, in the column ``role`` (docs/method.md). ``tokenizer``, ``substitute_data``
    and ``score`` are as for ``fidelity``.

    Examples:
        >>> len(papa.head_scores(model, batches, method="effect"))
        4

    Args:
        model: from ``load_encoder``, or one that you hold.
        substitute: as for ``replaced`` or ``ablated``; "average" is over the training texts.
        rows: a sample of so many training rows; None takes the method's.
        epochs: of what is trained; None takes the task's; for a model that you hold 3, and for
            causal gates as many as 240 steps take.
        learning_rate: likewise, or 0.05.
        evaluations: how often "shapley" and "greedy" may value a set of heads.
        ranking_seeds: of all that is drawn: their mean counts, and intervals are over them
            (Student t). For a model that you hold, seeds divide the texts among them; where that
            leaves a seed fewer than 8, all seeds have all texts, and intervals are NaN.
    """
    held = isinstance(model, nn.Module)
    known = METHODS if held else ("lambda", *HEAD_SCORES)
    if method not in known:
        near = f"there is no method '{method}' for this model{meant(method, known)}"
        raise SpecError(f"{near}: give one of {', '.join(known)}")
    of_encoders, of_held = (task, rows), (tokenizer, substitute_data, score)
    of_others = (*of_encoders, score if method != "effect" else None) if held else of_held
    if any(one is not None for one in of_others):
        without = "task and rows, or tokenizer, substitute_data and score"
        raise SpecError(f"method='{method}' of this model: leave out {without}")
    if isinstance(model, nn.Module):
        check_answering(model)
        is_listed = isinstance(ranking_seeds, Iterable) and not isinstance(ranking_seeds, str)
        seeds = [*ranking_seeds] if is_listed else []
        if not seeds:
            raise SpecError(f"ranking_seeds is {ranking_seeds!r}, expected a list of one or more")
        batches = batches_of(data, model, tokenizer)
        made = batches if substitute_data is None else batches_of(substitute_data, model, tokenizer)
        texts: list[Batch] = []
        if method != "effect":
            # Whatever batches the texts come in, substitutes and scores are the same.
            texts = single_texts(batches)
            made = mini_batches(texts if substitute_data is None else single_texts(made), model)
        replacement = substitute_for(model, substitute, made, seeds[0], tokenizer)
        if method == "effect":
            return effects(model, batches, replacement, score, progress)
        # A text that is longer than averages are is refused before anything is trained.
        with ablated(model, every_head(model), substitute=replacement):
            if not answers(model, mini_batches(texts, model))["lengths"].sum():
                raise DataError(NOTHING_COUNTS)
        options = epochs, learning_rate, list(dict.fromkeys(seeds)), progress
        if method == "causal_gates":
            gates = causal_gates(model, texts, replacement, *options)
            return numbered(model, gates)
        return numbered(model, frame_of(lambda_of(model, texts, replacement, *options)))
    check_loaded(model, decoder=True, whole=True)
    given = None
    if not isinstance(substitute, str) or substitute != "average":
        matrices = constants_for(model, substitute)
        given = supplied_matrices("supplied matrices", model.reference, matrices)
    settings = {
        "rows": rows,
        "evaluations": evaluations,
        "epochs": epochs,
        "learning_rate": learning_rate,
    }
    parts = {
        "substitutes": ["zeros"],
        "orders": [method],
        "keep": [0.5],
        "ranking_seeds": as_list(ranking_seeds),
        "ranking": settings,
    }
    with (
        study_inputs(model, data, task, sampled={}, **parts) as inputs,
        TemporaryDirectory(prefix="papa-") as folder,
    ):
        (part,) = build_pipeline(inputs).pairs
        rankings = part.rankings[method]
        if given:
            rankings = {seed: one.changed(average=given) for seed, one in rankings.items()}
        found = run_steps(with_inputs(rankings.values()), Store(folder), model, inputs, progress)
        by_seed = {seed: found[step] for seed, step in rankings.items()}
        return read_head_scores(method, by_seed).frame(method)


@formerly(fraction="keep")
def constant_heads(
    scores: Any, *, keep: float | None = None, count: int | None = None
) -> tuple[Head, ...]:
    """Return the heads that become constant first, ``count`` of them or all but the share ``keep``;
    ties by layer and head.

    Examples:
        >>> papa.constant_heads(torch.tensor([[0.9, 0.1], [0.4, 0.6]]), keep=0.5)
        ((0, 1), (1, 0))
    """
    numbers = score_of_each(scores)
    fits = 0 <= (keep or 0) <= 1 and (count or 0) in range(numbers.size + 1)
    if (keep is None) == (count is None) or not fits:
        raise SpecError(
            "give keep, the share of heads that stay input-dependent, 0 to 1, or count, how many "
            f"of the {numbers.size} heads become constant; found keep={keep} and count={count}"
        )
    order = head_order("lambda", numbers, *numbers.shape)
    if isinstance(scores, pandas.DataFrame):
        layers = sorted(scores["layer"].unique().tolist())
        order = [(layers[layer], head) for layer, head in order]
    return tuple(order[:count]) if keep is None else first_heads(order, keep)


def load_scores(path: str | Path) -> pandas.DataFrame:
    """A score for every head from somebody's file, as ``head_scores`` gives them.

    A file holds a line for each layer with a number for each head, with blanks, tabs (as
    DuoAttention writes) or commas between them; an array [layers, heads] of NumPy (.npy), or lists
    of that shape in JSON; or JSON with a list of scores under each ``"layer-head"``, of which the
    mean counts (Retrieval_Head).

    Examples:
        >>> import pathlib, tempfile
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "scores.json"
        >>> _ = file.write_text('{"0-0": [0.5, 0.7], "0-1": [0.1]}')
        >>> papa.constant_heads(papa.load_scores(file), keep=0.5)
        ((0, 1),)
    """
    return HeadScores(read_scores(path)[None]).frame(Path(path).name)
