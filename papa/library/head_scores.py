"""A score for every head, in one frame by any method; and the heads that become constant by it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from papa.errors import DataError, NumbersError, SpecError, meant
from papa.heads.interface import attention_layers, head_count
from papa.heads.substitutes import Mixed, Substitute
from papa.library.ablating import (
    NOTHING_COUNTS,
    ablated,
    answers,
    compared,
    kl_divergence,
    of_batch,
    substitute_for,
)
from papa.library.batches import (
    Batch,
    Data,
    alike_texts,
    batches_of,
    check_answering,
    joined_texts,
    mini_batches,
    single_texts,
)
from papa.library.encoder import TextEncoder, check_loaded
from papa.library.measuring import run_steps
from papa.library.steps import constants_for
from papa.library.tasks import Task, as_list, study_inputs
from papa.probes.training import train_theta
from papa.progress import bar
from papa.ranking.given import score_of_each
from papa.ranking.orders import HEAD_SCORES, head_order
from papa.ranking.seeds import HeadScores, TrainedLambda
from papa.scores.answers import mean_over_examples
from papa.scores.own import OwnScore
from papa.spec import ProbeSpec
from papa.spec.orders import Head, read_scores
from papa.spec.orders import constant_heads as first_heads
from papa.storage.store import Store
from papa.tasks.pipeline import build_pipeline
from papa.tasks.rank import read_head_scores
from papa.tasks.step import with_inputs
from papa.tasks.substitutes import supplied_matrices

METHODS = ("lambda", "effect", "causal_gates")
"""That score heads of a model that somebody holds."""
EPOCHS, LEARNING_RATE = 3, 0.05
"""Of λ on an in-memory model."""
MINI_BATCH = 4
"""Texts of a step. Seeds divide the texts among them: more texts a step would leave few steps."""
LEAST_TEXTS = 8
"""Of each seed, for an interval: seeds of 2 to 4 texts push λ one of two ways, all of them the same
way by chance, and such intervals held the truth in .78 of cases (``benchmarks.certainty``).
"""
FARTHEST = 4.0
"""How far logits are pulled."""


def head_scores(
    model: TextEncoder | nn.Module,
    data: Any,
    task: Task | None = None,
    *,
    by: str = "lambda",
    constants: Any = "average",
    rows: int | None = None,
    epochs: int | None = None,
    learning_rate: float | None = None,
    evaluations: int = 2_000,
    seeds: Sequence[int] = (0, 1, 2),
    tokenizer: PreTrainedTokenizerBase | None = None,
    made_from: Data = None,
    score: OwnScore | None = None,
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
    of a language model, in the column ``role`` (docs/method.md). ``tokenizer``, ``made_from`` and
    ``score`` are as for ``fidelity``.

    Examples:
        >>> len(papa.head_scores(model, batches, by="effect"))
        4

    Args:
        model: from ``load_encoder``, or one that you hold.
        constants: as for ``replaced``, or as ``by`` of ``ablated``; "average" is over the training
            texts.
        rows: a sample of so many training rows; None takes the method's.
        epochs: of what is trained; None takes the task's; for a model that you hold 3, and for
            causal gates as many as 240 steps take.
        learning_rate: likewise, or 0.05.
        evaluations: how often "shapley" and "greedy" may value a set of heads.
        seeds: of all that is drawn: their mean counts, and intervals are over them (Student t). For
            a model that you hold, seeds divide the texts among them; where that leaves a seed fewer
            than 8, all seeds have all texts, and intervals are NaN.
    """
    held = isinstance(model, nn.Module)
    known = METHODS if held else ("lambda", *HEAD_SCORES)
    if by not in known:
        near = f"there is no head score '{by}' for this model{meant(by, known)}"
        raise SpecError(f"{near}: give one of {', '.join(known)}")
    of_encoders, of_held = (task, rows), (tokenizer, made_from, score)
    of_others = (*of_encoders, score if by != "effect" else None) if held else of_held
    if any(one is not None for one in of_others):
        without = "task and rows, or tokenizer, made_from and score"
        raise SpecError(f"by='{by}' of this model: leave out {without}")
    if isinstance(model, nn.Module):
        check_answering(model)
        if isinstance(seeds, str) or not isinstance(seeds, Iterable) or not (seeds := [*seeds]):
            raise SpecError(f"seeds is {seeds!r}, expected a list of one or more")
        batches = batches_of(data, model, tokenizer)
        made = batches if made_from is None else batches_of(made_from, model, tokenizer)
        texts: list[Batch] = []
        if by != "effect":
            # Whatever batches the texts come in, substitutes and scores are the same.
            texts = single_texts(batches)
            made = mini_batches(texts if made_from is None else single_texts(made), model)
        substitute = substitute_for(model, constants, made, seeds[0], tokenizer)
        if by == "effect":
            return effects(model, batches, substitute, score, progress)
        # A text that is longer than averages are is refused before anything is trained.
        with ablated(model, every_head(model), substitute):
            if not answers(model, mini_batches(texts, model))["lengths"].sum():
                raise DataError(NOTHING_COUNTS)
        options = epochs, learning_rate, list(dict.fromkeys(seeds)), progress
        if by == "causal_gates":
            from papa.library.gating import causal_gates

            gates = causal_gates(model, texts, substitute, *options)
            return numbered(model, gates)
        return numbered(model, frame_of(lambda_of(model, texts, substitute, *options)))
    check_loaded(model, decoder=True, whole=True)
    given = None
    if not isinstance(constants, str) or constants != "average":
        own = constants_for(model, constants)
        given = supplied_matrices("given constants", model.reference, own)
    settings = {"rows": rows, "evaluations": evaluations, "seeds": as_list(seeds)}
    settings |= {"epochs": epochs, "learning_rate": learning_rate}
    parts = {"constants": ["zeros"], "orders": [by], "fractions": [0.5], "ranking": settings}
    with (
        study_inputs(model, data, task, sampled={}, **parts) as inputs,
        TemporaryDirectory(prefix="papa-") as folder,
    ):
        (part,) = build_pipeline(inputs).pairs
        rankings = part.rankings[by]
        if given:
            rankings = {seed: one.changed(average=given) for seed, one in rankings.items()}
        found = run_steps(with_inputs(rankings.values()), Store(folder), model, inputs, progress)
        by_seed = {seed: found[step] for seed, step in rankings.items()}
        return read_head_scores(by, by_seed).frame(by)


def constant_heads(
    scores: Any, fraction: float | None = None, *, count: int | None = None
) -> tuple[Head, ...]:
    """The heads that become constant first, ``count`` of them or all but a ``fraction``; ties by
    layer and head.

    Examples:
        >>> papa.constant_heads(torch.tensor([[0.9, 0.1], [0.4, 0.6]]), fraction=0.5)
        ((0, 1), (1, 0))
    """
    numbers = score_of_each(scores)
    fits = 0 <= (fraction or 0) <= 1 and (count or 0) in range(numbers.size + 1)
    if (fraction is None) == (count is None) or not fits:
        raise SpecError(
            "give fraction, the share of heads that keep their attention, 0 to 1, or count, how "
            f"many of the {numbers.size} heads become constant; found {fraction} and {count}"
        )
    order = head_order("lambda", numbers, *numbers.shape)
    if isinstance(scores, pandas.DataFrame):
        layers = sorted(scores["layer"].unique().tolist())
        order = [(layers[layer], head) for layer, head in order]
    return tuple(order[:count]) if fraction is None else first_heads(order, fraction)


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
        >>> papa.constant_heads(papa.load_scores(file), fraction=0.5)
        ((0, 1),)
    """
    return HeadScores(read_scores(path)[None]).frame(Path(path).name)


def effects(
    model: nn.Module,
    batches: Sequence[Mapping[str, Any]],
    substitute: Substitute,
    score: OwnScore | None,
    progress: bool,
) -> pandas.DataFrame:
    """What is lost of the answers with each head alone replaced, with its interval over texts."""
    heads = [(layer, head) for layer, own in every_head(model).items() for head in own]
    before, rows, measure = answers(model, batches, score), list[tuple[Any, ...]](), ""
    with bar("effects of heads", progress) as report:
        for done, (layer, head) in enumerate(heads, 1):
            with ablated(model, [(layer, head)], by=substitute):
                measure, lost = _lost(before, answers(model, batches, score))
            if not np.isfinite(lost).all():
                what = f"the model's answers with head {(layer, head)} replaced"
                raise NumbersError(what, "look at its weights and texts")
            found = mean_over_examples(measure, lost, before["lengths"])
            rows.append((layer, head, "effect", found.mean, found.low, found.high))
            report(done, len(heads))
    frame = pandas.DataFrame(rows, columns=["layer", "head", "method", "score", "low", "high"])
    frame.attrs["measure"] = measure.partition("_")[0]
    return frame


def _lost(
    before: Mapping[str, np.ndarray], after: Mapping[str, np.ndarray]
) -> tuple[str, Shaped[np.ndarray, " answers"]]:
    """The measure, and what is lost of each answer; of agreement whether it is."""
    if "embeddings" in before:
        first, second = (one["embeddings"].astype(np.float64) for one in (before, after))
        lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
        return "cosine_lost", 1 - (first * second).sum(1) / np.maximum(lengths, 1e-12)
    values = compared(before, after)
    for name in ("score_difference", "loss_difference", "divergence"):
        if name in values:
            return name, values[name].astype(np.float64) * (-1 if "score" in name else 1)
    return "agreement", ~values["agreement"]


def every_head(model: nn.Module) -> dict[int, range]:
    """By layer, as the model numbers its layers."""
    modules, numbers, _ = attention_layers(model)
    return {number: range(head_count(one)) for number, one in zip(numbers, modules, strict=True)}


def numbered(model: nn.Module, frame: pandas.DataFrame) -> pandas.DataFrame:
    """Scores of layers with attention, by the model's numbers of these layers."""
    return frame.assign(layer=np.array([*every_head(model)])[frame["layer"]])


def lambda_of(
    model: nn.Module,
    texts: Sequence[Batch],
    substitute: Substitute,
    epochs: int | None,
    learning_rate: float | None,
    seeds: Sequence[int],
    progress: bool,
) -> TrainedLambda:
    """λ of an in-memory model, trained once with each seed on rows of its own."""
    by_epoch: dict[int, np.ndarray] = {}
    for seed, rows in zip(seeds, rows_by_seed(len(texts), seeds), strict=True):
        by_step = trained_shares(
            model,
            [texts[row] for row in rows],
            substitute,
            epochs or EPOCHS,
            learning_rate or LEARNING_RATE,
            seed,
            progress,
        )
        by_epoch[seed] = by_step[-1:]
    return TrainedLambda(by_epoch, own_rows=has_own_rows(len(texts), seeds))


def frame_of(trained: TrainedLambda) -> pandas.DataFrame:
    """λ of every head; without an interval where seeds do not have rows of their own."""
    scores = trained if trained.own_rows else HeadScores(trained.mean[None])
    return scores.frame("lambda")


def has_own_rows(texts: int, seeds: Sequence[int]) -> bool:
    return len(seeds) > 1 and texts >= LEAST_TEXTS * len(seeds)


def rows_by_seed(texts: int, seeds: Sequence[int]) -> list[Int[np.ndarray, " rows"]]:
    """Divide texts among seeds, by a draw that follows from them; all texts for every seed where
    they are too few.
    """
    if not has_own_rows(texts, seeds):
        return [np.arange(texts)] * len(seeds)
    return np.array_split(np.random.default_rng([*seeds]).permutation(texts), len(seeds))


def trained_shares(
    model: nn.Module,
    texts: Sequence[Batch],
    substitute: Substitute,
    epochs: int,
    learning_rate: float,
    seed: int,
    progress: bool,
    start: Float[np.ndarray, "layers heads"] | None = None,
    pull: float = 0.0,
) -> Float[np.ndarray, "steps layers heads"]:
    """λ = sigmoid(θ) of λA + (1-λ)C after every step of training θ on what is lost of the answers,
    in mini-batches of texts; the seed is of their order.

    Args:
        start: λ before the first step; None begins at θ = 0.
        pull: weight of the logit of every λ, which is pulled to 1, or below 0 to 0.
    """
    every = every_head(model)
    heads = next(iter(every.values()))
    theta = nn.Parameter(torch.zeros(len(every), len(heads)))
    if start is not None:
        theta.data = torch.from_numpy(start).logit().float()
    shares_by_step: list[Float[Tensor, "layers heads"]] = []

    def parts(rows: Int[np.ndarray, " rows"]) -> list[Int[np.ndarray, " _"]]:
        return [rows[alike] for alike in alike_texts([texts[row] for row in rows])]

    def loss(
        rows: Int[np.ndarray, " rows"], shares: Float[Tensor, "layers heads"]
    ) -> tuple[Float[Tensor, ""], Int[Tensor, " texts"]]:
        batch = joined_texts([texts[row] for row in rows], model)
        with ablated(model, every, Mixed(substitute, shares)):
            mixed = of_batch(model, batch)
        lost = _lost_in_sum(model, batch, mixed)
        # A batch may hold no token that counts, such as a text of one, or no masked word.
        answered = mixed["lengths"].cpu()
        if pull:
            pulled = shares.logit(1e-6).clamp(-FARTHEST, FARTHEST).sum()
            lost = lost - pull * pulled * answered.sum()
        return lost, answered

    spec = ProbeSpec(learning_rate=learning_rate, batch_size=MINI_BATCH, epochs=epochs)
    what = f"gates pulled to {int(pull > 0)}" if pull else "λ"
    with bar(f"{what}, seed {seed}", progress) as report:

        def after_step(done: int, total: int) -> None:
            shares_by_step.append(theta.detach().sigmoid())
            report(done, total)

        rows = np.arange(len(texts))
        train_theta(theta, loss, parts, rows, spec, seed, window=len(texts), progress=after_step)
    return torch.stack(shares_by_step).double().numpy()


def objective_of(found: Mapping[str, Any]) -> str:
    """What λ of an in-memory model is trained to keep low, by what the model answers, in words."""
    if "loss" in found:
        return "the loss of the model itself"
    if "embeddings" in found:
        return "one less the cosine of embeddings to the original's"
    return "the divergence of answers from the original's"


def _lost_in_sum(model: nn.Module, batch: Batch, mixed: Mapping[str, Tensor]) -> Float[Tensor, ""]:
    """What the mixed answers to a batch lose, added up over answers."""
    if "loss" in mixed:
        return mixed["loss"].sum()
    with torch.no_grad():
        own = of_batch(model, batch)
    if "embeddings" in mixed:
        kept = nn.functional.cosine_similarity(mixed["embeddings"], own["embeddings"])
        return (1 - kept).sum()
    name = "words" if "words" in mixed else "logits"
    return kl_divergence(own[name], mixed[name]).sum()
