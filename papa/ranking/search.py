"""The largest number of heads of an order whose joint effect is known to stay within a limit.

Numbers of heads are tried by bisection, each on more and more texts, until the interval of its
effect decides. Every decision is made at the level α / (numbers · looks), with α = 5 %, where looks
are how often a number is compared with the limit. By the union bound no decision is wrong in 95 %
of searches, whatever path a search takes and wherever it stops (Bonferroni; Holm's and closed tests
would need all numbers).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from papa.probes.training import Rows
from papa.ranking.loss_scores import ExampleValues
from papa.ranking.set_values import effect_of_losses
from papa.scores.intervals import t_quantile
from papa.scores.levels import LEVEL

LossOf = Callable[[int, Rows], ExampleValues]
"""The losses of texts while the first so many heads of the order output a substitute."""
Verdict = Literal["within", "beyond", "undecided"]

SHARES_OF_TEXTS = (1 / 8, 1 / 4, 1 / 2, 1)
"""After which of the texts an effect is looked at."""
FEWEST_TEXTS = 8
"""Of a look: with fewer, Student's t of such a level is wider than any effect."""
_ROUNDING = 1e-9
"""Relative, of sums of losses in float64."""


@dataclass(frozen=True)
class Trial:
    """What was found of one number of heads.

    Attributes:
        number: How many heads of the order output a substitute.
        texts: On how many texts.
        effect: By how much the mean loss grows.
        low: The lower bound of its interval.
        high: The upper bound.
        verdict: Whether the effect is within the limit.
    """

    number: int
    texts: int
    effect: float
    low: float
    high: float
    verdict: Verdict


def search_number(
    loss: LossOf, original: ExampleValues, heads: int, limit: float, seed: int = 0
) -> list[Trial]:
    """Search for the largest number of heads whose effect is within a limit.

    Bisection takes it that more heads cost more. Where they do not, a larger number may be missed;
    that the numbers found are within the limit holds all the same. Where the loss of no text
    changes, nothing bounds what other texts lose: the number stays undecided.

    Args:
        loss: The losses of texts with heads replaced.
        original: The losses of all texts without.
        heads: How many heads the order has.
        limit: The largest effect, in units of the loss.
        seed: Of the order in which texts are taken.

    Returns:
        The trials, in their order.
    """
    texts = len(original.sums)
    order = np.random.default_rng(seed).permutation(texts)
    sizes = {max(round(share * texts), min(FEWEST_TEXTS, texts)) for share in SHARES_OF_TEXTS}
    looks = [np.sort(rows) for rows in np.split(order, sorted(sizes))[:-1]]
    level = LEVEL / (heads * len(looks))

    def trial_of(number: int) -> Trial:
        replaced: list[ExampleValues] = []
        for look, new_rows in enumerate(looks, 1):
            replaced.append(loss(number, new_rows))
            rows = np.concatenate(looks[:look])
            before = ExampleValues(original.sums[rows], original.lengths[rows])
            after = ExampleValues.joined(replaced)
            trial = compare_with_limit(number, before, after, limit, level)
            if trial.verdict != "undecided":
                break
        return trial

    trials: list[Trial] = []
    too_few = 0
    too_many = heads + 1
    while too_many - too_few > 1:
        trial = trial_of((too_few + too_many) // 2)
        trials.append(trial)
        # Without any change nothing is known, and more heads may be tried.
        is_unknown = trial.high == np.inf and trial.effect <= limit
        if trial.verdict == "within" or is_unknown:
            too_few = trial.number
        else:
            too_many = trial.number
    return trials


def compare_with_limit(
    head_count: int, original: ExampleValues, replaced: ExampleValues, limit: float, level: float
) -> Trial:
    """Return whether the effect of the first ``head_count`` heads is within a limit, from losses of
    the same texts without and with these heads replaced. Each bound of the effect's interval is
    wrong with probability ``level``.
    """
    added = replaced.sums - original.sums
    texts = len(added)
    scores = effect_of_losses(added[None], original.lengths, (1, 1), by_text=True)
    effect = float(scores.mean[0, 0])
    error = 0.0 if scores.standard_error is None else float(scores.standard_error[0, 0])
    # Losses that all changed equally, or not at all, say nothing of other texts. Rounding may give
    # these an error above 0.
    spread = np.abs(added - effect * original.lengths).max()
    is_equal = spread <= _ROUNDING * np.abs(added).max()
    half = np.inf if is_equal else t_quantile(texts, 1 - level) * error
    verdict: Verdict = "undecided"
    if effect + half <= limit:
        verdict = "within"
    elif effect - half > limit:
        verdict = "beyond"
    return Trial(head_count, texts, effect, effect - half, effect + half, verdict)
