"""What an encoder is known by: its name, its digests and its shape."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from papa.spec import Precision
from papa.spec.orders import Unit

DECODERS = ("gpt2", "llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text")
"""``model_type`` of decoders that studies measure with their native head: those on which
``papa.ablated`` is tested."""


@dataclass(frozen=True)
class EncoderReference:
    """A frozen encoder by name and content.

    Attributes:
        name, revision: as the study names it; the revision is the commit for hub names.
        digest: SHA-256 over its weights, as they were published, and its configuration.
        tokenizer_digest: SHA-256 over its tokenizer's files.
        positions: the most slots it has positions for.
        key_heads: heads of keys and values in a layer of a decoder; None in an encoder.
        tokenizer: of an encoder that is held in memory alone; None reads it from its files.
    """

    name: str
    revision: str | None
    folder: str
    digest: str
    tokenizer_digest: str
    model_type: str
    layers: int
    heads: int
    width: int
    positions: int
    precision: Precision = "float32"
    key_heads: int | None = None
    tokenizer: Any = field(default=None, compare=False, repr=False)

    @property
    def causal(self) -> bool:
        """Whether it is a decoder, which has no packed passes and is asked by its native head."""
        return self.model_type in DECODERS

    def heads_per_unit(self, unit: Unit) -> int:
        """Return how many heads of a layer are scored and become constant as a whole."""
        if unit == "head" or self.key_heads is None:
            return 1
        return self.heads // self.key_heads

    @property
    def display(self) -> str:
        return Path(self.name).name
