"""A probe of the user's own on frozen features: an estimator of scikit-learn, or a module of
PyTorch.

Both see, of every text, the means over its tokens of all layers side by side [(L+1)·d]; where words
have labels, every labelled word's layers.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from papa.errors import SpecError
from papa.probes.features import FeatureSource
from papa.probes.minibatches import WINDOW_ROWS
from papa.probes.packed import PackedFeatures
from papa.probes.probes import Probe
from papa.probes.training import SeedScore
from papa.scores.own import Score

MakeModule = Callable[[int, int], nn.Module]
"""From the width of inputs and the number of classes to a module: [n, inputs] to [n, classes]."""


def is_estimator(probe: Any) -> bool:
    """Whether it is fitted, as scikit-learn's are, and not trained by steps."""
    return not isinstance(probe, type) and hasattr(probe, "fit") and hasattr(probe, "predict")


def check_probe(probe: Any) -> None:
    """Refuse what is no probe."""
    makes = callable(probe) and not isinstance(probe, nn.Module)
    if not (is_estimator(probe) or makes):
        raise SpecError(
            f"probe is a {type(probe).__name__}, expected an estimator with fit and predict, or a "
            "function of (inputs, classes) such as torch.nn.Linear, which makes a module for each "
            "seed"
        )


def probe_inputs(
    features: PackedFeatures, rows: Int[Tensor, " rows"]
) -> tuple[Float[Tensor, "n layers_width"], Shaped[Tensor, " n"]]:
    """What a probe of the user's own sees of rows, and the labels."""
    tokens, position = features.tokens_of(rows)
    values = features.values[tokens.to(features.device)].flatten(1).float()
    if features.token_labels:
        return values, features.labels[tokens.to(features.device)]
    sums = values.new_zeros(len(rows), values.shape[1])
    sums.index_add_(0, position.to(features.device), values)
    lengths = features.lengths[rows].to(features.device)
    return sums / lengths[:, None], features.labels[rows.to(features.device)]


class ModuleProbe(Probe):
    """A module for each seed, whose start is drawn with it; trained as PAPA's own probes are, with
    dropout where it has any.
    """

    def __init__(self, make: MakeModule, seeds: Sequence[int], inputs: int, labels: int) -> None:
        super().__init__()
        found = []
        for seed in seeds:
            with torch.random.fork_rng():
                torch.manual_seed(seed)
                found.append(make(inputs, labels))
        for probe in found:
            if not isinstance(probe, nn.Module):
                raise SpecError(
                    f"probe: it gave a {type(probe).__name__}, expected a module of PyTorch: give "
                    "an estimator with fit and predict, or a function of (inputs, classes) such as "
                    "torch.nn.Linear"
                )
        self.templates = nn.ModuleList(found).requires_grad_(False)
        self.names = [name for name, _ in found[0].named_parameters()]
        # One tensor for all seeds, whose first axis the optimiser's clipping counts.
        self.stacked = nn.ParameterList(
            nn.Parameter(torch.stack([probe.get_parameter(name) for probe in found]))
            for name in self.names
        )
        self.labels = labels

    def _logits(
        self, number: int, inputs: Float[Tensor, "n layers_width"]
    ) -> Float[Tensor, "n labels"]:
        own = {name: all_[number] for name, all_ in zip(self.names, self.stacked, strict=True)}
        try:
            logits = torch.func.functional_call(self.templates[number], own, (inputs,))
        except (RuntimeError, TypeError, ValueError) as error:
            raise SpecError(f"probe: its module failed: {error}") from error
        if tuple(logits.shape) != (len(inputs), self.labels):
            raise SpecError(
                f"probe: its module gave shape {tuple(logits.shape)} for {len(inputs)} inputs, "
                f"expected [{len(inputs)}, {self.labels}]: a number for each class"
            )
        return logits

    def losses(
        self,
        features: PackedFeatures,
        rows: Int[Tensor, "seeds batch"],
        dropout_seeds: Sequence[int] | None = None,
    ) -> Float[Tensor, " seeds"]:
        self.templates.train()
        found = []
        for number, own in enumerate(rows):
            with torch.random.fork_rng():
                if dropout_seeds is not None:
                    torch.manual_seed(dropout_seeds[number])
                inputs, labels = probe_inputs(features, own)
                summed = F.cross_entropy(self._logits(number, inputs), labels, reduction="sum")
                found.append(summed / max(len(labels), 1))
        return torch.stack(found)

    def predictions(
        self, features: PackedFeatures, rows: Int[Tensor, " n"]
    ) -> Shaped[Tensor, "seeds predictions"]:
        self.templates.eval()
        inputs, _ = probe_inputs(features, rows)
        return torch.stack(
            [self._logits(number, inputs).argmax(-1) for number in range(len(self.templates))]
        )


def fit_estimators(
    estimator: Any,
    train: FeatureSource,
    validation: FeatureSource,
    seeds: Sequence[int],
    score: Score,
) -> list[SeedScore]:
    """Fit a copy of an estimator for each seed, its ``random_state`` where it has one, and score
    its predictions.
    """
    sides = []
    for source in (train, validation):
        parts, count = [], len(source.split)
        # All tokens of a window are in memory at once; of all rows only what a probe sees.
        for start in range(0, count, WINDOW_ROWS):
            features, numbers = source.window(np.arange(start, min(start + WINDOW_ROWS, count)))
            rows = torch.from_numpy(numbers)
            inputs, labels = (tensor.cpu().numpy() for tensor in probe_inputs(features, rows))
            parts.append((inputs, labels, features.label_counts[rows].numpy()))
        sides.append(tuple(map(np.concatenate, zip(*parts, strict=True))))
    (inputs, labels, _), (asked, true, lengths) = sides
    scores = []
    for seed in seeds:
        started, fresh = time.perf_counter(), copy.deepcopy(estimator)
        if hasattr(fresh, "get_params") and "random_state" in fresh.get_params():
            fresh.set_params(random_state=seed)
        try:
            predicted = np.asarray(fresh.fit(inputs, labels).predict(asked))
        except Exception as error:
            raise SpecError(f"probe: {type(estimator).__name__} failed: {error}") from error
        if predicted.shape != true.shape or predicted.dtype.kind not in "iu":
            raise SpecError(
                f"probe: {type(estimator).__name__} predicted {predicted.dtype} of shape "
                f"{list(predicted.shape)}, expected a class for each of {len(true)} inputs: give a "
                "classifier"
            )
        found = score(predicted, true, lengths)
        seconds = time.perf_counter() - started
        scores.append(SeedScore(seed, found.score, found.examples, seconds))
    return scores
