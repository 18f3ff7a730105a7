"""The joint effects of sets of heads of an in-memory model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas
from torch import nn
from transformers import PreTrainedTokenizerBase

from papa.errors import SpecError, shown
from papa.heads.attention_layers import attention_layers
from papa.library.ablating import is_head, parse_heads
from papa.library.batches import Data, batches_of, check_answering
from papa.library.substitutes import RequestedSubstitute, substitute_for
from papa.native.in_memory import open_scored
from papa.progress import bar
from papa.ranking.redundancy import joint_effects_of
from papa.scores.custom import RequestedScore
from papa.spec.orders import Head

if TYPE_CHECKING:
    from papa.reporting.figures import Figure


@dataclass(frozen=True)
class JointEffects:
    """What sets of heads cost together, beside the sum of what each of their heads costs.

    Examples:
        >>> compared = papa.joint_effects(model, batches, head_sets=[[(0, 0), (1, 0)]])
        >>> compared.plot().name
        'joint-effects'

    Attributes:
        effects: A row for every set, in units of the loss, each value with its 95 % interval over
            texts (``_low``, ``_high``; NaN where it is unknown): the ``joint`` effect,
            ``single_sum``, the sum of the effects of single heads, and ``redundancy``, their
            difference, whose two-sided p value is ``p``, adjusted for redundancies that are skewed
            over texts, as intervals are not, by the mean skewness of all sets of the call (so pass
            all sets that you compare in one call); also how many heads it has, the ``count``.
            ``joint_effects`` adds the ``heads``; ``measure`` the ``fraction`` of heads that stay
            input-dependent, or the ``pair``, such as L0H2 + L1H9 (of groups L0H0-3 + …), with
            ``p_holm``, its p value corrected for the number of pairs.
    """

    effects: pandas.DataFrame

    def plot(self) -> Figure:
        """Return the figure of the effects; ``.save("joint-effects.png")`` writes it."""
        from papa.reporting.redundancy_figures import joint_effects_figure

        return joint_effects_figure(self.effects)


def joint_effects(
    model: nn.Module,
    data: Data,
    *,
    head_sets: Iterable[Sequence[Head]],
    substitute: RequestedSubstitute = "average",
    tokenizer: PreTrainedTokenizerBase | None = None,
    score: RequestedScore | None = None,
    part: str | None = None,
    progress: bool = True,
) -> JointEffects:
    """Compare what sets of heads cost together with the sum of what each of their heads costs.

    Where two heads do one job, replacing either costs nothing and replacing both costs all: their
    redundancy is above 0, and scores of single heads miss them. Losses grow faster than changes
    do, so that heads that share nothing may have a small redundancy as well: compare sets. For n
    sets, a p value below .05 / n is significant at 5 % (Bonferroni).

    Examples:
        >>> compared = papa.joint_effects(model, batches, head_sets=[[(0, 0), (1, 0)]])
        >>> compared.effects["count"].tolist()
        [2]

    Args:
        model: An in-memory model of transformers in eval mode.
        data: Batches, or texts with ``tokenizer``.
        head_sets: Sets of heads as (layer, head) from 0: pairs, such as
            ``itertools.combinations(heads, 2)``, or the first of an order.
        substitute: What heads output instead, as for ``ablated``.
        tokenizer: The tokenizer, if ``data`` holds texts.
        score: As for ``head_scores``: without one, labels in ``data`` are not read.
        part: The part of the model whose heads are replaced, as for ``ablated``.
        progress: Whether to show a progress bar.

    Returns:
        The effects of every set, with a figure of them.

    Raises:
        SpecError: There is no set, one is empty, or the model has no such head.
        DataError: ``data`` cannot be read.
    """
    pretrained = check_answering(model)
    head_counts = attention_layers(pretrained, part).head_counts
    head_sets = [*head_sets]
    if head_sets and all(map(is_head, head_sets)):
        raise SpecError(f"head_sets holds heads, expected sets of heads: [{shown(head_sets)}]")
    named = [parse_heads(heads, head_counts) for heads in head_sets]
    if not named or not all(named):
        raise SpecError(f"head_sets is {named}, expected one set or more, each of one head or more")
    batches = batches_of(data, model, tokenizer)
    native = open_scored(pretrained, batches, score, part)
    replacement = substitute_for(model, substitute, batches, 0, tokenizer, part)
    indexed = [native.layers.indexed(heads) for heads in named]
    rows = np.arange(len(native.texts))
    with bar("joint effects", progress, "text") as report:
        effects = joint_effects_of(native, replacement.to(native.device), indexed, rows, report)
    return JointEffects(effects.assign(heads=[tuple(heads) for heads in named]))
