"""The search for the largest number of heads that an in-memory model can do without."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import pandas
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from papa.errors import DataError, SpecError
from papa.library.ablating import checked_heads
from papa.library.batches import Data, batches_of, check_answering
from papa.library.head_scores import constant_heads
from papa.library.substitutes import RequestedSubstitute, substitute_for
from papa.native.in_memory import open_in_memory
from papa.native.passes import NOTHING_COUNTS, NativeHead
from papa.progress import bar
from papa.ranking.external_scores import scores_by_head
from papa.ranking.head_scores import HeadScores
from papa.ranking.kv_groups import group_size_in
from papa.ranking.loss_scores import ExampleValues
from papa.ranking.search import Rows, search_number
from papa.scores.custom import CustomScore
from papa.spec.orders import Head


@dataclass(frozen=True)
class HeadSearch:
    """What ``search_heads`` found.

    Examples:
        >>> scores = papa.head_scores(model, batches, method="effect", progress=False)
        >>> search = papa.search_heads(
        ...     model, batches, scores=scores, max_effect=0.01, progress=False
        ... )
        >>> search.heads == papa.constant_heads(scores, count=len(search.heads))
        True

    Attributes:
        heads: The largest set of heads, as (layer, head) from 0, that is known to cost no more than
            the limit; empty if none is.
        trials: A row for each number of heads that was tried: ``constant_heads``, on how many
            ``texts``, the ``effect`` with its bounds ``low`` and ``high``, and the ``verdict``
            ("within", "beyond" or "undecided").
    """

    heads: tuple[Head, ...]
    trials: pandas.DataFrame


def search_heads(
    model: nn.Module,
    data: Data,
    *,
    scores: pandas.DataFrame | Tensor | np.ndarray | Sequence[Sequence[float]],
    max_effect: float,
    substitute: RequestedSubstitute = "average",
    tokenizer: PreTrainedTokenizerBase | None = None,
    score: CustomScore | None = None,
    progress: bool = True,
) -> HeadSearch:
    """Search for the largest number of heads, in the order of scores, that cost at most a limit.

    Numbers are tried by bisection, and each on an eighth, a quarter, half and all of the texts,
    until its interval decides. In 95 % of searches the returned heads cost no more than
    ``max_effect``: every decision has the level 5 % / (numbers · looks), so the statement holds for
    all numbers and looks at once (Bonferroni). It is about texts like ``data``: take scores, and
    averages that are ``substitute``, from other texts.

    Examples:
        >>> scores = papa.head_scores(model, batches, method="effect", progress=False)
        >>> search = papa.search_heads(
        ...     model, batches, scores=scores, max_effect=0.01, progress=False
        ... )
        >>> [*search.trials]
        ['constant_heads', 'texts', 'effect', 'low', 'high', 'verdict']

    Args:
        model: An in-memory model of transformers in eval mode.
        data: Batches, or texts with ``tokenizer``.
        scores: A frame from ``head_scores`` or ``load_scores``, or numbers [layers, heads]; the
            smallest become constant first. With the column ``kv_group`` whole groups do.
        max_effect: By how much the mean loss may grow, in its units: nats of the model's own loss,
            or the fall of ``score``.
        substitute: What heads output instead, as for ``ablated``.
        tokenizer: The tokenizer, if ``data`` holds texts.
        score: A function as for ``fidelity``, whose fall is the effect. None takes the model's own
            loss, as ``head_scores`` does.
        progress: Whether to show a progress bar.

    Returns:
        The heads, and the trials that found them.

    Raises:
        SpecError: ``max_effect`` is no positive number, scores do not fit the model, or there are
            fewer than two texts.
        DataError: ``data`` cannot be read.
    """
    if not 0 < max_effect < np.inf:
        raise SpecError(
            f"max_effect is {max_effect}, expected a positive number in units of the loss"
        )
    pretrained = check_answering(model)
    batches = batches_of(data, model, tokenizer)
    native = open_in_memory(pretrained, batches, score)
    texts = len(native.texts)
    if texts < 2:
        raise SpecError(f"data holds {texts} text, expected two or more, from which bounds follow")
    frame = _scores_of_model(scores, native)
    heads_per_unit = group_size_in(frame)
    numbers = len(frame) // heads_per_unit
    replacement = substitute_for(model, substitute, batches, 0, tokenizer).to(native.device)
    # Bisection, and the model as it is, once to see that something counts.
    most_passes = texts * (numbers.bit_length() + 2)
    passes = 0

    def heads_of(number: int) -> tuple[Head, ...]:
        return constant_heads(frame, count=number * heads_per_unit)

    with bar("search of heads", progress) as report:

        def loss(number: int, rows: Rows) -> ExampleValues:
            nonlocal passes
            head_set = native.layers.indexed(heads_of(number))
            (values,) = native.values_of_sets(replacement, [head_set], rows)
            passes += len(rows)
            report(passes, most_passes)
            return values

        if not loss(0, np.arange(texts)).lengths.sum():
            raise DataError(NOTHING_COUNTS)
        trials = search_number(loss, numbers, texts, max_effect)
        report(most_passes, most_passes)
    within = [trial.number for trial in trials if trial.verdict == "within"]
    rows = [
        {
            "constant_heads": trial.number * heads_per_unit,
            **{name: value for name, value in asdict(trial).items() if name != "number"},
        }
        for trial in trials
    ]
    return HeadSearch(heads_of(max(within, default=0)), pandas.DataFrame(rows))


def _scores_of_model(scores: object, native: NativeHead) -> pandas.DataFrame:
    """Return a frame of scores for every head of a model, layers numbered as the model does."""
    numbers = scores_by_head(scores)
    layers = native.layers.numbers
    if not isinstance(scores, pandas.DataFrame) and len(numbers) == len(native.layers.head_counts):
        numbers = numbers[layers]
    expected = (len(layers), native.heads_per_layer)
    if numbers.shape != expected:
        raise SpecError(
            f"scores are of {numbers.shape[0]} layers of {numbers.shape[1]} heads, and the model "
            f"has {expected[0]} layers of {expected[1]} heads: give a score for each head"
        )
    if isinstance(scores, pandas.DataFrame):
        checked_heads(constant_heads(scores, keep=0), native.layers.head_counts)
        return scores
    frame = HeadScores(numbers[None]).frame("scores")
    return frame.assign(layer=[layers[index] for index in frame["layer"]])
