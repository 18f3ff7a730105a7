"""Custom probes: classifiers such as scikit-learn's, fitted in place of PAPA's probes."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from papa.errors import SpecError
from papa.probes.features import FeatureSource
from papa.probes.packed_features import PackedFeatures
from papa.probes.probes import Inputs, Labels, Probe, RowsOfSeeds
from papa.scores.answers import labels_and_lengths


@runtime_checkable
class Estimator(Protocol):
    """A classifier as scikit-learn's, which takes float32 [inputs, width] and classes [inputs]."""

    def fit(self, inputs: np.ndarray, labels: np.ndarray, /) -> object:
        """Train on all inputs."""

    def predict(self, inputs: np.ndarray, /) -> np.ndarray:
        """Return a class for each input."""


def check_probe(probe: object) -> None:
    """Raise a SpecError unless ``probe`` is an estimator with fit and predict, as
    scikit-learn's.
    """
    if isinstance(probe, type) or not isinstance(probe, Estimator):
        raise SpecError(
            f"probe is a {type(probe).__name__}, expected an estimator with fit and predict"
        )


class FittedProbe(Probe):
    """Copies of an estimator, one for each seed, which is its ``random_state`` if it has one.

    It reads the mean over a text's tokens of all layers, or the states of labelled words.
    """

    def __init__(self, estimator: Estimator, source: FeatureSource, seeds: Sequence[int]) -> None:
        super().__init__(seeds[:1])  # All estimators read the same inputs.
        windows: list[np.ndarray] = []
        # All tokens of a window are in memory at once; of all rows only a probe's inputs.
        for features, rows in source.windows():
            windows.append(self.inputs(features, rows[None])[0][0].cpu().numpy())
            del features
        inputs = np.concatenate(windows)
        labels, _ = labels_and_lengths(source.split)
        self.fitted = [copy.deepcopy(estimator) for _ in seeds]
        for seed, seed_estimator in zip(seeds, self.fitted, strict=True):
            settable: Any = seed_estimator
            if hasattr(settable, "get_params") and "random_state" in settable.get_params():
                settable.set_params(random_state=seed)
            seed_estimator.fit(inputs, labels)

    def inputs(self, features: PackedFeatures, rows: RowsOfSeeds) -> tuple[Inputs, Labels]:
        if features.token_labels:
            return super().inputs(features, rows)
        texts = rows[0]
        device = features.values.device
        tokens, position = features.tokens_of(texts)
        values = features.values[tokens.to(device)].flatten(1).float()
        sums = values.new_zeros(len(texts), values.shape[1])
        sums.index_add_(0, position.to(device), values)
        means = sums / features.lengths[texts].to(device)[:, None]
        return means[None], features.labels[texts.to(device)][None]

    def predicted(self, inputs: Inputs, labels: Labels) -> Tensor:
        features = inputs[0].cpu().numpy()
        if not len(features):  # Rows without a labelled word.
            return torch.zeros(len(self.fitted), 0, dtype=torch.int64)
        predicted = np.stack([estimator.predict(features) for estimator in self.fitted])
        if predicted.shape[1:] != features.shape[:1] or predicted.dtype.kind not in "iu":
            raise SpecError(
                f"probe: {type(self.fitted[0]).__name__} predicted {predicted.dtype} of shape "
                f"{list(predicted.shape[1:])}, expected a class for each of {len(features)} "
                "inputs: give a classifier"
            )
        return torch.from_numpy(predicted)
