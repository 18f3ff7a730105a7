"""Makes ``transformers`` know exported encoders, without importing it.

Importing ``papa.exported`` takes seconds, so it waits until a configuration of its type is read.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

TYPE, CONFIGURATION = "papa_constant_heads", "ConstantHeadsConfig"
_REGISTRY = "transformers.models.auto.configuration_auto"


class _Exports(ModuleType):
    """Stands for ``papa.exported`` among the modules of transformers' models."""

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module("papa.exported"), name)


class _Finder(MetaPathFinder):
    """Waits for transformers' registry to be imported."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != _REGISTRY:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def run_and_register(module: ModuleType) -> None:
                run(module)
                _register(module)

            spec.loader.exec_module = run_and_register  # type: ignore[method-assign]
        return spec


def _register(registry: Any) -> None:
    registry.CONFIG_MAPPING_NAMES[TYPE] = CONFIGURATION
    registry.CONFIG_MAPPING._modules[TYPE] = _Exports(TYPE)


def register() -> None:
    """Register the configuration, now or once transformers' registry is imported."""
    if _REGISTRY in sys.modules:
        _register(sys.modules[_REGISTRY])
    else:
        sys.meta_path.insert(0, _Finder())
