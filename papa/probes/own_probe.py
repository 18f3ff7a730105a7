"""A probe of the user's own on frozen features: an estimator of scikit-learn, or a module of
PyTorch.

Both see, of every text, the means over its tokens of all layers side by side [(L+1)·d]; where words
have labels, every labelled word's layers.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from papa.errors import SpecError
from papa.probes.features import FeatureSource, PackedFeatures
from papa.probes.minibatches import WINDOW_ROWS
from papa.probes.probes import Probe, tokens_by_seed

MakeModule = Callable[[int, int], nn.Module]
"""From the width of inputs and the number of classes to a module: [n, inputs] to [n, classes]."""


def is_estimator(probe: Any) -> bool:
    """Whether it is fitted, as scikit-learn's are, and not trained by steps."""
    return not isinstance(probe, type) and hasattr(probe, "fit") and hasattr(probe, "predict")


def check_probe(probe: Any) -> None:
    """Refuse what is no probe."""
    if not is_estimator(probe) and (not callable(probe) or isinstance(probe, nn.Module)):
        raise SpecError(
            f"probe is a {type(probe).__name__}, expected an estimator with fit and predict, or a "
            "function of (inputs, classes) such as torch.nn.Linear, which makes a module for each "
            "seed"
        )


def probe_inputs(
    features: PackedFeatures, rows: Int[Tensor, " rows"]
) -> tuple[Float[Tensor, "n layers_width"], Shaped[Tensor, " n"]]:
    """What a probe of the user's own sees of rows, and the labels."""
    if features.token_labels:
        (values,), (labels,) = tokens_by_seed(features, rows[None])
        return values, labels
    tokens, position = (one.to(features.device) for one in features.tokens_of(rows))
    values = features.values[tokens].flatten(1).float()
    sums = values.new_zeros(len(rows), values.shape[1]).index_add_(0, position, values)
    lengths = features.lengths[rows].to(features.device)
    return sums / lengths[:, None], features.labels[rows.to(features.device)]


class ModuleProbe(Probe):
    """A module whose start is drawn with a seed; trained as PAPA's own probes are, with dropout
    where it has any.
    """

    def __init__(self, make: MakeModule, seed: int, inputs: int, labels: int) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.module = make(inputs, labels)
            shape = tuple(self.module.eval()(torch.zeros(2, inputs)).shape)
        if shape != (2, labels):
            raise SpecError(
                f"probe: its module gave shape {shape} for 2 inputs, expected [2, {labels}]: a "
                "number for each class"
            )

    def losses(
        self,
        features: PackedFeatures,
        rows: Int[Tensor, "1 batch"],
        dropout_seeds: Sequence[int] | None = None,
    ) -> Float[Tensor, " 1"]:
        inputs, labels = probe_inputs(features, rows[0])
        with torch.random.fork_rng():
            torch.manual_seed(dropout_seeds[0] if dropout_seeds else 0)
            summed = F.cross_entropy(self.module.train()(inputs), labels, reduction="sum")
        return summed[None] / max(len(labels), 1)

    def predictions(
        self, features: PackedFeatures, rows: Int[Tensor, " n"]
    ) -> Shaped[Tensor, "1 predictions"]:
        return self.module.eval()(probe_inputs(features, rows)[0]).argmax(-1)[None]


class FittedProbe(Probe):
    """Copies of an estimator, one for each seed, which is its ``random_state`` where it has one."""

    def __init__(self, estimator: Any, source: FeatureSource, seeds: Sequence[int]) -> None:
        super().__init__()
        parts = []
        # All tokens of a window are in memory at once; of all rows only what a probe sees.
        for rows in torch.arange(len(source.split)).split(WINDOW_ROWS):
            features, numbers = source.window(rows.numpy())
            found = probe_inputs(features, torch.from_numpy(numbers))
            parts.append([tensor.cpu().numpy() for tensor in found])
        inputs, labels = map(np.concatenate, zip(*parts, strict=True))
        self.fitted = [copy.deepcopy(estimator) for _ in seeds]
        for seed, fresh in zip(seeds, self.fitted, strict=True):
            if hasattr(fresh, "get_params") and "random_state" in fresh.get_params():
                fresh.set_params(random_state=seed)
            fresh.fit(inputs, labels)

    def predictions(
        self, features: PackedFeatures, rows: Int[Tensor, " n"]
    ) -> Shaped[Tensor, "seeds predictions"]:
        inputs = probe_inputs(features, rows)[0].cpu().numpy()
        if not len(inputs):  # Rows without a labelled word.
            return torch.zeros(len(self.fitted), 0, dtype=torch.int64)
        predicted = np.stack([one.predict(inputs) for one in self.fitted])
        if predicted.shape[1:] != inputs.shape[:1] or predicted.dtype.kind not in "iu":
            raise SpecError(
                f"probe: {type(self.fitted[0]).__name__} predicted {predicted.dtype} of shape "
                f"{list(predicted.shape[1:])}, expected a class for each of {len(inputs)} inputs: "
                "give a classifier"
            )
        return torch.from_numpy(predicted)
