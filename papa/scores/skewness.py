"""A test of means of skewed values: Student's t adjusted for skewness."""

import math

import numpy as np
from jaxtyping import Float

_LEAST_RATE = 1e-9
"""Stands for no skewness, where the adjusted t is 0 / 0; its limit is t."""


def p_values_of_skewed(
    t: Float[np.ndarray, " means"], residuals: Float[np.ndarray, "means values"]
) -> Float[np.ndarray, " means"]:
    """Return two-sided p values of the hypotheses that means of skewed values are 0.

    Where a few values lie far below the others, a sample without any of them has a mean that is too
    high and a standard error that is too small, so that Student's t is too often large. Such a
    sample does not show its skewness, but those of similar means do: t is adjusted by the skewness
    of all means, on average, as far as it is opposed to the sign of t. Skewness of the other
    direction counts as 0, so that it hides none, and no p value is smaller than Student's.

    With s the opposed skewness / √values and r = 2s/3, the adjusted |t| is (1 - exp(-r·|t|)) / r -
    s/6. To first order in s this is the adjusted t of Johnson (1978): |t| - s·t²/3 - s/6. It is
    written as an exponential to be monotone (after Hall, 1992, whose cubic is flat at the t that
    corrections for many comparisons need).

    Examples:
        >>> symmetric = np.array([[-1.0, -1.0, 1.0, 1.0]])
        >>> skewed = np.array([[-3.0, 1.0, 1.0, 1.0]])
        >>> p_values_of_skewed(np.array([4.0]), symmetric).round(2)
        array([0.03])
        >>> p_values_of_skewed(np.array([4.0]), skewed).round(2)
        array([0.15])

    Args:
        t: Student's t of each mean, with one degree of freedom less than values; NaN if unknown.
        residuals: The values of each mean less the mean.

    Returns:
        The p value of each mean, NaN where t is.
    """
    # scipy takes half a second to import, which a command that reads stored tables does without.
    from scipy.special import stdtr

    deviation = np.sqrt((residuals**2).mean(axis=1))
    varies = deviation > 0
    if not varies.any():
        return np.full(len(t), math.nan)
    skewness = (residuals[varies] ** 3).mean(axis=1) / deviation[varies] ** 3
    far_below = np.clip(-skewness, 0, None).mean()
    far_above = np.clip(skewness, 0, None).mean()
    values = residuals.shape[1]
    opposed = np.where(t > 0, far_below, far_above) / math.sqrt(values)
    rate = np.maximum(2 / 3 * opposed, _LEAST_RATE)
    adjusted = -np.expm1(-rate * np.abs(t)) / rate - opposed / 6
    return 2 * stdtr(values - 1, -np.clip(adjusted, 0, None))
