"""A score for every head, in one frame by any method; and the heads that become constant by it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from numbers import Real
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas
from pydantic import ValidationError
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from papa.errors import DataError, SpecError, joined, meant, shown
from papa.heads.substitutes import Substitute
from papa.library.batches import Data, batches_of, check_answering, columns_of
from papa.library.encoder import Encoder, check_measurable
from papa.library.in_memory import number_layers
from papa.library.measurement import head_score_attrs
from papa.library.running import run_steps
from papa.library.substitutes import (
    RequestedSubstitute,
    constants_for,
    substitute_for,
    substitute_names,
)
from papa.library.tasks import Task, as_list, checked_list, study_inputs, task_in_memory
from papa.library.unit_orders import METHODS, check_unit, reads_score
from papa.native.in_memory import open_scored
from papa.native.passes import NOTHING_COUNTS, NativeHead
from papa.native.scores import score_native_heads
from papa.ranking.external_scores import scores_by_head
from papa.ranking.head_scores import HeadScores
from papa.ranking.kv_groups import group_scores, group_size_in, with_group_column
from papa.ranking.orders import SCORING_METHODS, head_order
from papa.scores.custom import RequestedScore
from papa.spec import RankingSpec
from papa.spec.faults import sentence
from papa.spec.orders import Head, Unit, default_order, heads_of_units
from papa.spec.orders import constant_heads as first_heads
from papa.spec.score_files import read_score_file
from papa.storage.artifacts import read_metadata
from papa.storage.store import Store
from papa.tasks.head_scores import read_head_scores
from papa.tasks.pipeline import build_pipeline
from papa.tasks.step import with_inputs
from papa.tasks.substitutes import supplied_matrices


def head_scores(
    model: Encoder | nn.Module,
    data: Data,
    *,
    task: Task | None = None,
    method: str | None = None,
    substitute: RequestedSubstitute = "average",
    substitute_data: Data = None,
    ranking_seeds: Sequence[int] = (0, 1, 2),
    rows: int | None = None,
    epochs: int | None = None,
    learning_rate: float | None = None,
    evaluations: int | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    score: RequestedScore | None = None,
    part: str | None = None,
    unit: Unit = "head",
    progress: bool = True,
) -> pandas.DataFrame:
    """Score every head by how much it is missed; the smallest scores become constant first.

    A loaded encoder is scored on the training split, with the scores of a study, to the bit:
    "lambda" (paper, Section 3.2) or another method of docs/method.md.

    An in-memory model is scored by its own answers, without labels unless ``score`` reads them, by
    the same methods but "self_lambda", and by "sink_share" if it has learned sinks. They follow its
    loss, which ``attrs["measure"]`` names: that of a language model or on labels, or the divergence
    of other logits, in nats; 1 - the cosine of mean-pooled embeddings; or the fall of ``score``, if
    that is a function. "causal_gates" separates facilitating, interfering and irrelevant heads of a
    language model, in the column ``role`` (docs/method.md).

    Examples:
        >>> len(papa.head_scores(model, batches, method="effect"))
        4

    Args:
        model: An ``Encoder``, or an in-memory model of transformers in eval mode.
        data: For an encoder, a task's name or tables under "train" and "validation"; for an
            in-memory model, batches, or texts with ``tokenizer``.
        task: Which columns of ``data`` hold what, as for ``measure``; of an in-memory model only
            ``papa.Task(text=…, text_pair=…, label=…)``, as ``score`` says what is scored.
        method: How heads are scored: "lambda" or another method of docs/method.md. None takes
            "effect" for a native head (an in-memory model, or ``papa.Task(head="native")``), and
            "lambda" for a probe. "effect" takes a pass over ``rows`` texts for each head and each
            ranking seed, which is slow for a large model.
        substitute: What heads are compared with, as for ``replaced`` or ``ablated``; "average" is
            over the training texts.
        substitute_data: For an in-memory model, other texts or batches, for a substitute that is
            computed from text. None takes ``data``.
        ranking_seeds: Seeds of all that is drawn or trained: scores are means over them, intervals
            are over them (Student t). For an in-memory model those of "lambda" and gates divide the
            texts among them; if that leaves a seed fewer than 8, each has all texts, and intervals
            are NaN.
        rows: The size of a sample of training rows for each seed; None takes the method's: up to
            256 for "effect".
        epochs: Passes of what is trained; None takes the task's, for an in-memory model 3, and for
            "causal_gates" as many as 240 steps take.
        learning_rate: The rate of what is trained; None takes the task's, for an in-memory model
            0.05.
        evaluations: How often "shapley" and "greedy" may compute the loss of a set of heads, for
            each seed; None takes 2,000, and for large models as many as the method needs.
        tokenizer: The tokenizer of an in-memory model, if ``data`` holds texts.
        score: For methods that follow a loss of an in-memory model, a score as for ``measure``.
            With "accuracy", "negative_log_perplexity" or "spearman", which read labels, "effect" is
            by how much the loss on them grows; with any score of embeddings, 1 - the cosine to the
            original's; with a function, which "lambda" does not follow, by
            how much it falls. Without one no labels are read, even if ``data`` has some: "effect"
            is by how much a language model's loss grows, or how far other answers move from the
            original's.
        part: For an in-memory model of several parts, the part whose heads are scored, as for
            ``ablated``.
        unit: What is scored: "head", or "kv_group", the heads of a decoder or an in-memory model
            that share keys and values by its configuration. A cache needs no keys of such a group
            if all of its heads are constant, and no values either if they output zeros. They are
            replaced together, gates and λ are one for all, and what is a mean over texts is their
            mean.
        progress: Whether to show progress bars.

    Returns:
        A row for every head: layer, head, method, score, and its 95 % interval (low, high), NaN
        where nothing is known of it. With ``unit="kv_group"`` the heads of a group have one score,
        and ``kv_group`` is the number of the group in its layer. ``attrs`` holds the
        ``substitute``, the ``ranking_seeds`` and the number of training ``texts``.

    Raises:
        SpecError: There is no such method or substitute for this model, or an argument is not for
            this model.
        DataError: ``data`` cannot be read, or holds nothing to score by.
        NumbersError: The model answers NaN or infinity.
    """
    if not isinstance(model, nn.Module):
        check_measurable(
            model, tokenizer=tokenizer, substitute_data=substitute_data, score=score, part=part
        )
    studied = (name for name, entry in SCORING_METHODS.items() if entry.in_studies)
    known = METHODS if isinstance(model, nn.Module) else ("lambda", *studied)
    if method is not None and method not in known:
        near = f"there is no method {shown(method)} for this model{meant(method, known)}"
        raise SpecError(f"{near}: give one of {joined(known)}")
    check_unit(unit)
    settings = {
        "rows": rows,
        "evaluations": evaluations,
        "epochs": epochs,
        "learning_rate": learning_rate,
    }
    if isinstance(model, nn.Module):
        task = task_in_memory(task, ("text", "text_pair", "label", "name"))
        method = default_order(["native"]) if method is None else method
        if score is not None and not reads_score(method, score):
            kind = "function" if callable(score) else "score"
            raise SpecError(f"method='{method}' follows no {kind}: leave out score")
        pretrained = check_answering(model)
        seeds = checked_list("ranking_seeds", ranking_seeds)
        ranking = _checked_ranking(settings)
        batches = batches_of(data, model, tokenizer, columns_of(task))
        native = open_scored(pretrained, batches, score, part, unit)
        if method != "lambda":
            # Too few are refused before averages are computed.
            SCORING_METHODS[method].evaluations(ranking, len(native.units))
        computed_from = batches if substitute_data is None else substitute_data
        replacement = substitute_for(model, substitute, computed_from, seeds[0], tokenizer, part)
        frame = _scores_of_native_head(native, method, replacement, seeds, ranking, progress)
        (substitute_name,) = substitute_names([substitute])
        frame.attrs |= head_score_attrs(substitute_name, seeds, len(native.texts))
        return frame
    document = {
        "substitutes": ["zeros"],
        "keep": [0.5],
        "unit": unit,
        "ranking_seeds": as_list(ranking_seeds),
        "ranking": settings,
    }
    if method is not None:
        document["orders"] = [method]
    return _scores_of_encoder(model, data, task, substitute, document, progress)


def _checked_ranking(settings: Mapping[str, object]) -> RankingSpec:
    """Return a study's ``ranking`` with these settings. Raises a SpecError where one is wrong."""
    try:
        return RankingSpec.model_validate(settings)
    except ValidationError as error:
        raise SpecError(sentence(error.errors()[0])) from None


def _scores_of_native_head(
    native: NativeHead,
    method: str,
    substitute: Substitute,
    seeds: Sequence[int],
    ranking: RankingSpec,
    progress: bool,
) -> pandas.DataFrame:
    """Score the heads of an in-memory model by its native head."""
    # A text that is longer than averages are is refused before anything is trained.
    if not native.all_answers(substitute, native.units)["lengths"].sum():
        raise DataError(NOTHING_COUNTS)
    scores = score_native_heads(native, method, substitute, seeds, ranking, progress)
    frame = number_layers(native, scores.frame(method))
    if len(native.texts) == 1:
        warnings.warn(
            "data holds one text, so nothing is known of the certainty of these scores (intervals "
            "are NaN), nor whether they hold for other texts: give more texts",
            stacklevel=3,
        )
    frame.attrs = {"measure": native.loss.name}
    return frame


def _scores_of_encoder(
    encoder: Encoder,
    data: object,
    task: Task | None,
    substitute: RequestedSubstitute,
    document: Mapping[str, object],
    progress: bool,
) -> pandas.DataFrame:
    """Run the ranking steps of a study with the settings of ``document``, among them one order at
    most, in this process.
    """
    average = None
    substitute_name = "average"
    if not isinstance(substitute, str) or substitute != "average":
        (substitute_name,) = substitute_names([substitute])
        matrices = constants_for(encoder, substitute)
        average = supplied_matrices.step(
            "supplied matrices", encoder=encoder.reference, matrices=matrices
        )
    with (
        study_inputs(encoder, data, task, sampled={}, settings=document) as inputs,
        TemporaryDirectory(prefix="papa-") as folder,
    ):
        (pair,) = build_pipeline(inputs).pairs
        (method,) = inputs.study.orders
        steps = pair.rankings[method]
        if average:
            steps = {seed: step.with_arguments(average=average) for seed, step in steps.items()}
        artifacts = run_steps(with_inputs(steps.values()), Store(folder), encoder, inputs, progress)
        by_seed = {seed: artifacts[step] for seed, step in steps.items()}
        frame = read_head_scores(method, by_seed).frame(method)
        if inputs.study.unit != "head":
            frame = with_group_column(frame, pair.encoder.heads_per_unit(inputs.study.unit))
        training_rows = read_metadata(artifacts[pair.text])["rows"]["train"]
        frame.attrs = head_score_attrs(substitute_name, inputs.study.ranking_seeds, training_rows)
        return frame


def constant_heads(
    scores: pandas.DataFrame | Tensor | np.ndarray | Sequence[Sequence[float]],
    *,
    keep: float | None = None,
    count: int | None = None,
) -> tuple[Head, ...]:
    """Return the heads that become constant first; equal scores go by layer and head.

    Examples:
        >>> papa.constant_heads(torch.tensor([[0.9, 0.1], [0.4, 0.6]]), keep=0.5)
        ((0, 1), (1, 0))

    Args:
        scores: A frame from ``head_scores`` or ``load_scores``, or numbers [layers, heads]; the
            smallest become constant first. With a column ``kv_group``, as ``head_scores`` returns
            it for ``unit="kv_group"``, whole groups become constant, by the highest score of their
            heads.
        keep: The share of heads that stay input-dependent, from 0 to 1: 0.25 returns 75 % of the
            heads.
        count: Instead of ``keep``, how many heads become constant; of groups as many as fit.

    Returns:
        The heads as (layer, head) from 0.

    Raises:
        SpecError: Neither or both of ``keep`` and ``count`` are given, one is out of range, or
            scores are missing or not finite.
    """
    numbers = scores_by_head(scores)
    is_share = isinstance(keep or 0.0, Real) and 0 <= (keep or 0) <= 1
    fits = is_share and (count or 0) in range(numbers.size + 1)
    if (keep is None) == (count is None) or not fits:
        raise SpecError(
            "give either keep (the share of heads that stay input-dependent, 0 to 1) or "
            f"count (how many of the {numbers.size} heads become constant); found keep={keep!r} "
            f"and count={count!r}"
        )
    heads_per_unit = group_size_in(scores)
    unit_scores = group_scores(numbers, heads_per_unit)
    units = head_order("lambda", unit_scores, *unit_scores.shape)
    if isinstance(scores, pandas.DataFrame):
        layers = sorted(scores["layer"].unique().tolist())
        units = [(layers[layer], unit) for layer, unit in units]
    if keep is None:
        constant = units[: (count or 0) // heads_per_unit]
    else:
        constant = list(first_heads(units, keep))
    return tuple(heads_of_units(constant, heads_per_unit))


def load_scores(path: str | Path) -> pandas.DataFrame:
    """Read a score for every head from a file that another tool wrote.

    Examples:
        >>> import pathlib, tempfile
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "scores.json"
        >>> _ = file.write_text('{"0-0": [0.5, 0.7], "0-1": [0.1]}')
        >>> papa.constant_heads(papa.load_scores(file), keep=0.5)
        ((0, 1),)

    Args:
        path: A text file with a line for each layer and a number for each head, separated by
            blanks, tabs (as DuoAttention writes) or commas; an array [layers, heads] of NumPy
            (.npy), or JSON lists of that shape; or JSON with a list of scores under each
            ``"layer-head"``, of which the mean counts (as Retrieval_Head writes).

    Returns:
        A frame as ``head_scores`` returns it, without intervals.

    Raises:
        DataError: The file is missing or holds no such scores.
    """
    return HeadScores(read_score_file(path)[None]).frame(Path(path).name)
