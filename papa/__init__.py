"""PAPA: how much does a pretrained Transformer encoder really use its attention?

The names below are the library; the modules that they live in are private. Each is loaded on first
use, as reading a specification needs no torch.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from wrapt import when_imported

if TYPE_CHECKING:
    from papa import errors as errors
    from papa.errors import PapaError as PapaError
    from papa.library.ablating import ablated as ablated
    from papa.library.ablating import fidelity as fidelity
    from papa.library.describing import describe as describe
    from papa.library.encoder import Encoder as Encoder
    from papa.library.encoder import load_encoder as load_encoder
    from papa.library.exporting import export as export
    from papa.library.head_scores import constant_heads as constant_heads
    from papa.library.head_scores import head_scores as head_scores
    from papa.library.head_scores import load_scores as load_scores
    from papa.library.matrices import ConstantMatrices as ConstantMatrices
    from papa.library.matrices import average as average
    from papa.library.matrices import constants as constants
    from papa.library.measurement import Measurement as Measurement
    from papa.library.measuring import measure as measure
    from papa.library.redundancy import JointEffects as JointEffects
    from papa.library.redundancy import joint_effects as joint_effects
    from papa.library.replacing import features as features
    from papa.library.replacing import replaced as replaced
    from papa.library.score_files import save_scores as save_scores
    from papa.library.search import HeadSearch as HeadSearch
    from papa.library.search import search_heads as search_heads
    from papa.library.tasks import Task as Task
    from papa.spec.orders import Cell as Cell

_NAMES = {
    "papa.errors": "PapaError",
    "papa.library.ablating": "ablated fidelity",
    "papa.library.describing": "describe",
    "papa.library.encoder": "Encoder load_encoder",
    "papa.library.exporting": "export",
    "papa.library.head_scores": "constant_heads head_scores load_scores",
    "papa.library.matrices": "ConstantMatrices average constants",
    "papa.library.measurement": "Measurement",
    "papa.library.measuring": "measure",
    "papa.library.redundancy": "JointEffects joint_effects",
    "papa.library.replacing": "features replaced",
    "papa.library.score_files": "save_scores",
    "papa.library.search": "HeadSearch search_heads",
    "papa.library.tasks": "Task",
    "papa.spec.orders": "Cell",
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}
__all__ = sorted(_HOMES)
_HOMES["ConstantHeadsConfig"] = "papa.exported.model"


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'papa' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


@when_imported("transformers.models.auto.configuration_auto")
def _register_exports(registry: Any) -> None:
    """Register exports with transformers; their module is imported once one's configuration is
    read.
    """
    registry.CONFIG_MAPPING_NAMES["papa_constant_heads"] = "ConstantHeadsConfig"
    registry.CONFIG_MAPPING._modules["papa_constant_heads"] = sys.modules[__name__]
