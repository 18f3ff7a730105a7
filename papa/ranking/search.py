"""The largest number of heads of an order whose joint effect is known to stay within a limit.

Numbers of heads are tried by bisection, each on more and more texts, until the interval of its
effect decides. A look compares one number of heads with the limit, on the texts until then. Every
look decides at the level α / (numbers · looks at each), with α = 5 %. By the union bound no
decision is wrong in 95 % of searches, whatever path a search takes and wherever it stops
(Bonferroni; Holm's and closed tests would need all numbers).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from papa.probes.training import Rows
from papa.ranking.loss_scores import ExampleValues
from papa.ranking.set_values import effect_of_losses
from papa.scores.intervals import t_quantile
from papa.scores.levels import LEVEL
from papa.scores.verdicts import Verdict, verdict_on

LossOfFirstHeads = Callable[[int, Rows], ExampleValues]
"""From a number of heads, the first of the order, to the losses of texts while they are replaced.
"""

SHARES_OF_TEXTS = (1 / 8, 1 / 4, 1 / 2, 1)
"""The shares of the texts after which there is a look."""
FEWEST_TEXTS = 8
"""The fewest texts at a look: with fewer, the interval at this level is too wide to decide."""
_ROUNDING = 1e-9
"""The relative rounding error of sums of losses in float64."""


@dataclass(frozen=True)
class Trial:
    """What was found of one number of heads.

    Attributes:
        head_count: How many heads of the order output a substitute.
        texts: On how many texts.
        effect: By how much the mean loss grows.
        low: The lower bound of its interval.
        high: The upper bound.
        verdict: Whether the effect is within the limit.
    """

    head_count: int
    texts: int
    effect: float
    low: float
    high: float
    verdict: Verdict


def search_head_count(
    loss: LossOfFirstHeads, original: ExampleValues, heads: int, limit: float, seed: int = 0
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
        seed: The seed of the order in which texts are taken.

    Returns:
        The trials, in their order.
    """
    texts = len(original.sums)
    order = np.random.default_rng(seed).permutation(texts)
    sizes = {max(round(share * texts), min(FEWEST_TEXTS, texts)) for share in SHARES_OF_TEXTS}
    looks = [np.sort(rows) for rows in np.split(order, sorted(sizes))[:-1]]
    level = LEVEL / (heads * len(looks))

    def try_heads(head_count: int) -> Trial:
        replaced: list[ExampleValues] = []
        for look, new_rows in enumerate(looks, 1):
            replaced.append(loss(head_count, new_rows))
            rows = np.concatenate(looks[:look])
            before = ExampleValues(original.sums[rows], original.lengths[rows])
            after = ExampleValues.joined(replaced)
            trial = compare_with_limit(head_count, before, after, limit, level)
            if trial.verdict != "undecided":
                break
        return trial

    trials: list[Trial] = []
    too_few = 0
    too_many = heads + 1
    while too_many - too_few > 1:
        trial = try_heads((too_few + too_many) // 2)
        trials.append(trial)
        # Without any change nothing is known, and more heads may be tried.
        is_unknown = trial.high == np.inf and trial.effect <= limit
        if trial.verdict == "within" or is_unknown:
            too_few = trial.head_count
        else:
            too_many = trial.head_count
    return trials


def compare_with_limit(
    head_count: int, original: ExampleValues, replaced: ExampleValues, limit: float, level: float
) -> Trial:
    """Compare the effect of the first ``head_count`` heads with a limit, from losses of the same
    texts without and with these heads replaced. Each bound of the effect's interval is wrong with
    probability ``level``.
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
    low = effect - half
    high = effect + half
    verdict = verdict_on(low, high, limit, smaller_are_within=True)
    return Trial(head_count, texts, effect, low, high, verdict)
