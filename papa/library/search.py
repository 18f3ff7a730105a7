"""The search for the largest number of heads that an in-memory model can do without."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import pandas
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from papa.errors import DataError, SpecError, shown
from papa.library.batches import Data, batches_of, check_answering
from papa.library.substitutes import RequestedSubstitute, substitute_for
from papa.library.unit_orders import UnitOrders
from papa.native.in_memory import open_scored
from papa.native.passes import NOTHING_COUNTS
from papa.progress import bar
from papa.ranking.external_scores import scores_by_head
from papa.ranking.kv_groups import group_size_in
from papa.ranking.loss_scores import ExampleValues
from papa.ranking.search import Rows, search_head_count
from papa.scores.custom import RequestedScore
from papa.spec.orders import Head, Unit, heads_of_units


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
    substitute_data: Data = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    score: RequestedScore | None = None,
    part: str | None = None,
    progress: bool = True,
) -> HeadSearch:
    """Search for the largest number of heads, in the order of scores, that cost at most a limit.

    Numbers are tried by bisection, and each on an eighth, a quarter, half and all of the texts,
    until its interval decides. In 95 % of searches the returned heads cost no more than
    ``max_effect``: every decision has the level 5 % / (numbers · looks), so the statement holds for
    all numbers and looks at once (Bonferroni). It is about texts like ``data``: take scores, and
    ``substitute_data``, from other texts.

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
            smallest become constant first. With the column ``kv_group`` whole groups do, which are
            those of the model.
        max_effect: By how much the mean loss may grow, in its units, which are those of the effects
            of ``head_scores``.
        substitute: What heads output instead, as for ``ablated``.
        substitute_data: Other texts or batches, for a substitute that is computed from text. None
            takes ``data``.
        tokenizer: The tokenizer, if ``data`` holds texts.
        score: As for ``head_scores``: without one, labels in ``data`` are not read.
        part: The part of the model whose heads become constant, as for ``ablated``.
        progress: Whether to show a progress bar.

    Returns:
        The heads, and the trials that found them.

    Raises:
        SpecError: ``max_effect`` is no positive number, or scores do not fit the model.
        DataError: ``data`` cannot be read, or has fewer than two texts.
    """
    if not (isinstance(max_effect, int | float) and 0 < max_effect < np.inf):
        raise SpecError(
            f"max_effect is {shown(max_effect)}, expected a positive number in units of the loss"
        )
    # Not the name of an order, which has no scores here.
    scores_by_head(scores)
    pretrained = check_answering(model)
    batches = batches_of(data, model, tokenizer)
    unit: Unit = "kv_group" if group_size_in(scores) > 1 else "head"
    native = open_scored(pretrained, batches, score, part, unit)
    texts = len(native.texts)
    if texts < 2:
        raise DataError(f"data holds {texts} text, expected two or more, from which bounds follow")
    orders = UnitOrders.from_requested([scores], native)
    (name,) = orders.names
    units = orders.arranged(name, {}, (0, 0))
    computed_from = batches if substitute_data is None else substitute_data
    replacement = substitute_for(model, substitute, computed_from, 0, tokenizer, part)
    replacement = replacement.to(native.device)
    # On all texts: the tries of bisection, and the original model.
    most_passes = texts * (len(units).bit_length() + 1)
    passes = 0

    with bar("search of heads", progress, "text") as report:

        def loss(number: int, rows: Rows) -> ExampleValues:
            nonlocal passes
            (values,) = native.values_of_sets(replacement, [units[:number]], rows)
            passes += len(rows)
            report(passes, most_passes)
            return values

        original = loss(0, np.arange(texts))
        if not original.lengths.sum():
            raise DataError(NOTHING_COUNTS)
        trials = search_head_count(loss, original, len(units), max_effect)
        report(most_passes, most_passes)
    most = max((trial.head_count for trial in trials if trial.verdict == "within"), default=0)
    heads = heads_of_units(units[:most], native.heads_per_unit)
    frame = pandas.DataFrame([asdict(trial) for trial in trials])
    frame["head_count"] *= native.heads_per_unit
    return HeadSearch(
        tuple((native.layers.numbers[layer], head) for layer, head in heads),
        frame.rename(columns={"head_count": "constant_heads"}),
    )
