"""Whether a task's splits can be scored and compared: how their classes are spread."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

SHIFTED = 0.25
"""Total variation distance between the classes of both splits from which on they count as spread differently: this
share of one split's labels would have to be others for it to be like the other split."""


def split_warnings(train: np.ndarray, validation: np.ndarray, names: Sequence[str]) -> list[str]:
    """What a reader of the scores must know of the classes of a task's splits, in sentences; mostly nothing.

    Args:
        train, validation: int64 [labels], the class of each row, or of each word.
        names: the classes' names.
    """
    counts = [np.bincount(labels, minlength=len(names)) for labels in (train, validation)]
    warnings = []
    for split, found in zip(("training", "validation"), counts, strict=True):
        if np.count_nonzero(found) == 1:
            warnings.append(
                f"every {split} label is '{names[int(found.argmax())]}' ({found.sum():,} of them), so "
                + ("there is nothing to learn" if split == "training" else "a score shows nothing")
                + ": take other rows, or more of them"
            )
    if not all(found.sum() for found in counts):
        return warnings
    shares = [found / found.sum() for found in counts]
    difference = shares[1] - shares[0]
    distance = float(np.abs(difference).sum() / 2)
    if distance > SHIFTED:
        most = int(np.abs(difference).round(9).argmax())
        warnings.append(
            f"classes are spread differently in the two splits (total variation distance {distance:.2f}): "
            f"'{names[most]}' is {shares[0][most]:.0%} of the training labels and {shares[1][most]:.0%} of the "
            "validation labels"
        )
    return warnings
