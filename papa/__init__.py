"""PAPA: how much does a pretrained Transformer encoder really use its attention?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from papa.exporting import load_exported

__all__ = ["load_exported"]


def __getattr__(name: str) -> Any:
    # Loaded on first use: reading a specification needs no torch.
    if name == "load_exported":
        from papa.exporting import load_exported

        return load_exported
    raise AttributeError(f"module 'papa' has no attribute '{name}'")
