"""PAPA: how much does a pretrained Transformer encoder really use its attention?

The names below are the library; the modules that they live in are private. Each is loaded on first
use, as reading a specification needs no torch.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from papa.registered import register

if TYPE_CHECKING:
    from papa.ablation.substitutes import Streaming
    from papa.attention.constants import ConstantMatrices
    from papa.errors import PapaError
    from papa.export import export
    from papa.library.ablating import ablated
    from papa.library.constants import constants
    from papa.library.describing import describe
    from papa.library.effects import head_effects
    from papa.library.encoder import Decoder, TextEncoder, load_decoder, load_encoder
    from papa.library.fidelity import Fidelity, fidelity
    from papa.library.lambdas import constant_heads, train_lambda, train_own_lambda
    from papa.library.measuring import Measurement, measure
    from papa.library.savings import CacheSavings, cache_savings
    from papa.library.scoring import score_heads
    from papa.library.steps import average, features, fit_probe, replaced
    from papa.library.tasks import Task
    from papa.probes.training import SeedScore
    from papa.ranking.seeds import TrainedLambda
    from papa.spec.head_scores import load_scores

_PLACES = {
    "papa.ablation.substitutes": ("Streaming",),
    "papa.attention.constants": ("ConstantMatrices",),
    "papa.errors": ("PapaError",),
    "papa.export": ("export",),
    "papa.library.ablating": ("ablated",),
    "papa.library.constants": ("constants",),
    "papa.library.describing": ("describe",),
    "papa.library.effects": ("head_effects",),
    "papa.library.encoder": ("Decoder", "TextEncoder", "load_decoder", "load_encoder"),
    "papa.library.fidelity": ("Fidelity", "fidelity"),
    "papa.library.lambdas": ("constant_heads", "train_lambda", "train_own_lambda"),
    "papa.library.measuring": ("Measurement", "measure"),
    "papa.library.savings": ("CacheSavings", "cache_savings"),
    "papa.library.scoring": ("score_heads",),
    "papa.library.steps": ("average", "features", "fit_probe", "replaced"),
    "papa.library.tasks": ("Task",),
    "papa.probes.training": ("SeedScore",),
    "papa.ranking.seeds": ("TrainedLambda",),
    "papa.spec.head_scores": ("load_scores",),
}
_HOMES = {name: module for module, names in _PLACES.items() for name in names}

__all__ = [
    "CacheSavings",
    "ConstantMatrices",
    "Decoder",
    "Fidelity",
    "Measurement",
    "PapaError",
    "SeedScore",
    "Streaming",
    "Task",
    "TextEncoder",
    "TrainedLambda",
    "ablated",
    "average",
    "cache_savings",
    "constant_heads",
    "constants",
    "describe",
    "export",
    "features",
    "fidelity",
    "fit_probe",
    "head_effects",
    "load_decoder",
    "load_encoder",
    "load_scores",
    "measure",
    "replaced",
    "score_heads",
    "train_lambda",
    "train_own_lambda",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'papa' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Library(ModuleType):
    """The import of ``papa.export`` would put the module in the place of the function in it."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Library
register()
