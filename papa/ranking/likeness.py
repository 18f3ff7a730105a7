"""How alike two head orders are."""

from __future__ import annotations

from collections.abc import Sequence

from papa.spec.orders import Head


def kendall_tau(first: Sequence[Head], other: Sequence[Head]) -> float:
    """Kendall's τ of two orders of the same heads, -1..1: of all pairs of heads the share that
    stands alike in both, less the share that does not.
    """
    from scipy.stats import kendalltau

    position = {head: place for place, head in enumerate(first)}
    return float(kendalltau([position[head] for head in other], range(len(other))).statistic)


def kept_in_common(first: Sequence[Head], other: Sequence[Head], constant: int) -> float:
    """Of the heads that stay input-dependent after the first ``constant`` of an order, the share
    that another order keeps as well. By chance it is their share of all heads.
    """
    return len({*first[constant:]} & {*other[constant:]}) / (len(first) - constant)
