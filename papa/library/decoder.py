"""A decoder that ``papa.measure`` asks by its own head: a causal language model by its name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from papa.encoders.reference import EncoderReference, resolve_encoder
from papa.errors import EncoderError
from papa.library.encoder import named, slots_of


@dataclass(frozen=True)
class Decoder:
    """A decoder with its tokenizer, by its files; ``load_decoder`` makes it.

    Attributes:
        reference: its name, shape and digests.
        slots: tokens of a text that are read.
    """

    reference: EncoderReference
    slots: int

    @property
    def layers(self) -> int:
        """L, the number of layers."""
        return self.reference.layers

    @property
    def heads(self) -> int:
        """H, the number of heads in each layer; they count by query."""
        return self.reference.heads

    def __repr__(self) -> str:
        shape = f"{self.layers} layers of {self.heads} heads, width {self.reference.width}"
        return f"<{self.reference.display}: a decoder, {shape}, {self.slots} slots>"


def load_decoder(
    model: str | Path, *, slots: int | None = None, revision: str | None = None
) -> Decoder:
    """A decoder by its name, for ``papa.measure``; one that you hold is for ``papa.ablated``.

    Args:
        model: a name on the Hugging Face hub, or a folder.
        slots: texts are cut at so many tokens. None takes 128, or as many as it has positions for.
        revision: a branch, tag or commit on the hub.

    Raises:
        EncoderError: there is no such model, it is no supported decoder, or slots are impossible.
        HubUnreachableError: it is not on this machine and the hub does not answer.
    """
    reference = resolve_encoder(named(str(model), revision))
    if not reference.causal:
        raise EncoderError(f"'{reference.name}' is an encoder: load it with papa.load_encoder")
    return Decoder(reference, slots_of(reference, slots))
