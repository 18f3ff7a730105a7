"""A model ready for text by its name or in memory: a frozen encoder with its tokenizer and the
layout of its inputs, or a decoder.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers import PreTrainedModel

from papa.corpora.tokens import SpecialTokens, check_vocabulary, special_tokens_of
from papa.encoders import encoder as encoders
from papa.encoders.encoder import Encoder
from papa.encoders.precision import check_device, check_precision
from papa.encoders.reference import EncoderReference, load_tokenizer, resolve_encoder
from papa.errors import EncoderError, SpecError
from papa.spec import EncoderSpec, Precision

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True, repr=False)
class TextEncoder:
    """What ``load_encoder`` gives.

    Attributes:
        reference: its name, shape and digests.
        slots: S, the length of the layout of its inputs; a decoder reads so many tokens of a text.
        encoder: what computes, an ``Encoder``; None of a decoder, which is opened by its files.
    """

    reference: EncoderReference
    slots: int
    encoder: Any = None

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """Of the transformers library."""
        return load_tokenizer(self.reference)

    @cached_property
    def special_tokens(self) -> SpecialTokens:
        """What the layout needs of the tokenizer."""
        return special_tokens_of(self.tokenizer)

    @property
    def layers(self) -> int:
        """L, the number of layers."""
        return self.reference.layers

    @property
    def heads(self) -> int:
        """H, the number of heads in each layer; a decoder's count by query."""
        return self.reference.heads

    def __repr__(self) -> str:
        what = f"on {self.encoder.device}" if self.encoder else "a decoder"
        shape = f"{self.layers} layers of {self.heads} heads, width {self.reference.width}"
        return f"<{self.reference.display}: {shape}, {self.slots} slots, {what}>"


def check_loaded(encoder: object, *, decoder: bool = False, whole: bool = False) -> None:
    """Refuse what is none, what may be no ``decoder``, and what must be ``whole``."""
    if not isinstance(encoder, TextEncoder):
        raise SpecError(
            f"encoder is a {type(encoder).__name__}, expected what papa.load_encoder gives"
        )
    if encoder.encoder is None and not decoder:
        raise SpecError(
            f"{encoder.reference.display} is a decoder, which papa.measure, papa.head_scores and "
            "papa.constants take alone: give papa.ablated what transformers loads"
        )
    if whole and encoder.encoder and encoder.encoder.dispatch.rules:
        raise SpecError("heads of this encoder are constant inside papa.replaced: leave the block")


def load_encoder(
    model: str | Path | PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None = None,
    *,
    slots: int | None = None,
    revision: str | None = None,
    device: str | None = None,
    precision: Precision = "float32",
) -> TextEncoder:
    """An encoder by its name, or from a model that is loaded already and stays as it is; or a
    decoder by its name, for ``measure`` and ``head_scores``.

    Its numbers are not the stock model's: ``[SEP]`` stands in the last of the slots (paper, App. A;
    docs/library.md says how much that moves).

    Examples:
        >>> papa.load_encoder("embedded/all-MiniLM-L6-v2", slots=64, device="cpu")
        <all-MiniLM-L6-v2: 6 layers of 12 heads, width 384, 64 slots, on cpu>

    Args:
        model: a name on the Hugging Face hub, a folder, or an encoder of transformers, whose
            weights are shared (copied to float32 from half precision); of a model with a task's
            head, its base model is taken.
        tokenizer: of a model that is loaded already: its own.
        slots: S, an even number: up to S-2 tokens of a text fit. None takes 128, or as many as the
            model has positions for.
        device: None takes a GPU where there is one; a loaded model's own. Decoders need a CPU.
        precision: "bfloat16" is faster where the device multiplies in it.
    """
    if isinstance(model, str | Path):
        if tokenizer is not None:
            raise EncoderError(f"{model} comes with its own tokenizer: leave the tokenizer out")
        where = Path(model).expanduser()
        is_path = str(model).startswith((".", "/", "~")) or where.is_dir()
        chosen = device or ("cuda" if torch.cuda.is_available() else "cpu")
        check_device(chosen)
        check_precision(precision, chosen)
        spec = EncoderSpec(name=str(where.resolve() if is_path else model), revision=revision)
        reference = resolve_encoder(spec, precision)
        if reference.causal and device not in (None, "cpu"):
            raise SpecError(f"{reference.display} is a decoder, which computes on the CPU here")
        running = None if reference.causal else encoders.load_encoder(reference, chosen)
    else:
        reference, running = _held(model, tokenizer, device, precision)
    slots = min(128, reference.positions) if slots is None else slots
    if slots not in range(4, reference.positions + 1, 2):
        raise EncoderError(
            f"slots is {slots}, expected an even number from 4 to {reference.positions}, the "
            f"positions that {reference.display} has"
        )
    found = TextEncoder(reference, int(slots), running)
    if running:
        _ = found.special_tokens  # They are missed here, not in the first call.
        check_vocabulary(found.tokenizer, len(running.word_embeddings), reference.display)
    return found


def _held(
    model: Any, tokenizer: Any, device: str | None, precision: Precision
) -> tuple[EncoderReference, Encoder]:
    if not isinstance(model, PreTrainedModel):
        raise EncoderError(
            "expected the name of an encoder or a model of transformers, found a "
            f"{type(model).__name__}: give what it holds, such as model.module, "
            "model.merge_and_unload() or model[0].auto_model"
        )
    whole: Any = model.base_model
    name = whole.name_or_path or type(whole).__name__
    if tokenizer is None:
        raise EncoderError(f"the model {name} comes without a tokenizer: give it as well")
    device = device or str(whole.device)
    check_device(device)
    check_precision(precision, torch.device(device).type)
    encoder = Encoder(whole, device, precision)
    if whole.dtype in (torch.float16, torch.bfloat16):
        encoder.model.float()
    reference = EncoderReference(
        name=name,
        revision=None,
        folder="",
        digest=_digest(whole),
        tokenizer_digest=f"of {name}, in memory",
        model_type=whole.config.model_type,
        layers=encoder.layers,
        heads=encoder.heads,
        width=encoder.width,
        positions=encoder.family.positions(whole.config),
        precision=precision,
        tokenizer=tokenizer,
    )
    return reference, encoder


def _digest(model: nn.Module) -> str:
    """SHA-256 over the names and values of a model's weights."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
