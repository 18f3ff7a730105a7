"""Kinds of constants that decoders alone have in a study. An entry of ``OF_DECODERS`` adds a kind.

Specifications read the names, so this module imports no torch.
"""

from __future__ import annotations

OF_DECODERS: dict[str, dict[str, int]] = {"streaming": {"sinks": 4, "recent": 64}}
"""Kind → its keys of a study, with their defaults."""
