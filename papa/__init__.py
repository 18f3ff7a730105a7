"""PAPA: how much does a pretrained Transformer encoder really use its attention?

The names below are the library; the modules that they live in are private. Each is loaded on first
use, as reading a specification needs no torch.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from wrapt import when_imported

if TYPE_CHECKING:
    from papa.errors import PapaError
    from papa.export import export
    from papa.library.ablating import ablated
    from papa.library.encoder import load_encoder
    from papa.library.fidelity import fidelity
    from papa.library.head_scores import constant_heads, head_scores, load_scores
    from papa.library.measuring import Measurement, measure
    from papa.library.steps import average, constants, describe, features, replaced
    from papa.library.tasks import Task

_HOMES = {
    "ConstantHeadsConfig": "papa.export",
    "Measurement": "papa.library.measuring",
    "PapaError": "papa.errors",
    "Task": "papa.library.tasks",
    "ablated": "papa.library.ablating",
    "average": "papa.library.steps",
    "constant_heads": "papa.library.head_scores",
    "constants": "papa.library.steps",
    "describe": "papa.library.steps",
    "export": "papa.export",
    "features": "papa.library.steps",
    "fidelity": "papa.library.fidelity",
    "head_scores": "papa.library.head_scores",
    "load_encoder": "papa.library.encoder",
    "load_scores": "papa.library.head_scores",
    "measure": "papa.library.measuring",
    "replaced": "papa.library.steps",
}

__all__ = [
    "Measurement",
    "PapaError",
    "Task",
    "ablated",
    "average",
    "constant_heads",
    "constants",
    "describe",
    "export",
    "features",
    "fidelity",
    "head_scores",
    "load_encoder",
    "load_scores",
    "measure",
    "replaced",
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


@when_imported("transformers.models.auto.configuration_auto")
def _register_exports(registry: Any) -> None:
    """transformers knows exports; their module is imported once one's configuration is read."""
    registry.CONFIG_MAPPING_NAMES["papa_constant_heads"] = "ConstantHeadsConfig"
    registry.CONFIG_MAPPING._modules["papa_constant_heads"] = sys.modules[__name__]
