"""An encoder ready for text: a frozen model, its tokenizer and the layout of its inputs; or a
decoder by its name.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, cast

import torch
from torch import nn

from papa.corpora.tokens import SpecialTokens, check_vocabulary, special_tokens_of
from papa.encoders import encoder as encoders
from papa.encoders.encoder import Encoder
from papa.encoders.precision import check_device, check_precision
from papa.encoders.reference import EncoderReference, load_tokenizer, resolve_encoder
from papa.encoders.supported import family_of, supported
from papa.errors import EncoderError, SpecError
from papa.spec import EncoderSpec, Precision

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

DEFAULT_SLOTS = 128


@dataclass(frozen=True)
class TextEncoder:
    """A frozen encoder with its tokenizer; ``load_encoder`` makes it.

    Attributes:
        encoder: what runs.
        tokenizer: of the transformers library.
        reference: its name, shape and digests.
        slots: S, the length of the layout that its inputs get.
        special_tokens: what the layout needs of the tokenizer.
    """

    encoder: Encoder
    tokenizer: PreTrainedTokenizerBase
    reference: EncoderReference
    slots: int
    special_tokens: SpecialTokens

    @property
    def layers(self) -> int:
        """L, the number of layers."""
        return self.encoder.layers

    @property
    def heads(self) -> int:
        """H, the number of heads in each layer."""
        return self.encoder.heads

    @property
    def width(self) -> int:
        """d, the width of the hidden states."""
        return self.encoder.width

    def __repr__(self) -> str:
        shape = f"{self.layers} layers of {self.heads} heads, width {self.width}"
        return f"<{self.reference.display}: {shape}, {self.slots} slots, on {self.encoder.device}>"

    def check_whole(self) -> None:
        """Refuse an encoder with constant heads.

        Raises:
            SpecError: the call stands inside ``replaced``.
        """
        if self.encoder.dispatch.rules:
            raise SpecError(
                "heads of this encoder are constant inside papa.replaced, and this call measures "
                "its own attention: leave the block first"
            )


def check_loaded(encoder: object) -> None:
    """Refuse what is no encoder that ``load_encoder`` gives, such as its name."""
    if not isinstance(encoder, TextEncoder):
        raise SpecError(
            f"encoder is a {type(encoder).__name__}, expected what papa.load_encoder gives: load "
            "it first"
        )


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


def load_encoder(
    model: str | Path | PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None = None,
    *,
    slots: int | None = None,
    revision: str | None = None,
    device: str | None = None,
    precision: Precision = "float32",
) -> TextEncoder:
    """An encoder by its name, or from a model that is loaded already and stays as it is.

    Its numbers are not the stock model's: ``[SEP]`` stands in the last of the slots, not after the
    text (paper, App. A), which moves the hidden states of all tokens (docs/library.md says by how
    much).

    Examples:
        >>> import papa
        >>> papa.load_encoder("embedded/all-MiniLM-L6-v2", slots=64, device="cpu")
        <all-MiniLM-L6-v2: 6 layers of 12 heads, width 384, 64 slots, on cpu>

    Args:
        model: a name on the Hugging Face hub, a folder, ``embedded/all-MiniLM-L6-v2``, or a model
            of transformers. The encoder shares the memory of such a model's weights and changes
            nothing of it; of a model with a task's head, its base model is taken. Weights in half
            precision are copied to float32.
        tokenizer: for a model that is loaded already: its fast tokenizer.
        slots: S, the length of the layout: up to S-2 tokens of a text fit (paper, App. A). None
            takes 128, or as many as the encoder has positions for.
        revision: a branch, tag or commit on the hub.
        device: None takes a GPU where there is one; a loaded model's own device.
        precision: what it computes in; bfloat16 needs a GPU, or a CPU that has it.

    Raises:
        EncoderError: there is no such encoder, it is not supported (a decoder, say), its weights
            are damaged or absent, or the tokenizer does not fit it.
        HubUnreachableError: it is not on this machine and the hub does not answer.
        SpecError: there is no such device, or bfloat16 is asked for and it is a CPU without it.
    """
    if isinstance(model, str | Path):
        if tokenizer is not None:
            raise EncoderError(
                f"the encoder '{model}' comes with its own tokenizer: leave the tokenizer out"
            )
        return _by_name(str(model), slots, revision, device, precision)
    if not isinstance(model, nn.Module) or not hasattr(model, "base_model"):
        raise EncoderError(
            "expected the name of an encoder or a model of transformers, found a "
            f"{type(model).__name__}: of a model of sentence-transformers, give "
            "model[0].auto_model and model.tokenizer"
        )
    return _held(cast("PreTrainedModel", model.base_model), tokenizer, slots, device, precision)


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


def named(name: str, revision: str | None) -> EncoderSpec:
    """A model by its name on the hub or its folder, as a study has it."""
    folder = Path(name).expanduser()
    if name.startswith((".", "/", "~")) or folder.is_dir():
        name = str(folder.resolve())
    return EncoderSpec(name=name, revision=revision)


def slots_of(reference: EncoderReference, slots: int | None) -> int:
    """The slots asked for, or as many as a model takes, up to 128."""
    slots = min(DEFAULT_SLOTS, reference.positions) if slots is None else slots
    if not isinstance(slots, Integral) or slots % 2 or not 4 <= slots <= reference.positions:
        raise EncoderError(
            f"slots is {slots}, expected an even number from 4 to {reference.positions}, the "
            f"positions that {reference.display} has"
        )
    return slots


def _by_name(
    name: str, slots: int | None, revision: str | None, device: str | None, precision: Precision
) -> TextEncoder:
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    check_device(device)
    check_precision(precision, device)
    reference = resolve_encoder(named(name, revision), precision)
    return _with_layout(
        encoders.load_encoder(reference, device), load_tokenizer(reference), reference, slots
    )


def _held(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None,
    slots: int | None,
    device: str | None,
    precision: Precision,
) -> TextEncoder:
    config, name = model.config, model.name_or_path or type(model).__name__
    family = family_of(config.model_type)
    if family is None:
        raise EncoderError(
            f"architecture '{config.model_type}' is not supported: use one of {supported()}"
        )
    if tokenizer is None:
        raise EncoderError(
            f"the model {name} has no tokenizer with it: give its own as the second argument"
        )
    absent = [key for key, tensor in model.state_dict(keep_vars=True).items() if tensor.is_meta]
    if absent:
        raise EncoderError(
            f"the model {name} has no weights in memory ({absent[0]} is on the meta device): load "
            "it with its weights"
        )
    device = device or str(model.device)
    check_device(device)
    check_precision(precision, torch.device(device).type)
    encoder = Encoder(model, device, precision)
    if model.dtype in (torch.float16, torch.bfloat16):
        encoder.model.float()
    reference = EncoderReference(
        name=name,
        revision=None,
        folder="",
        digest=_digest(model),
        tokenizer_digest=f"of {name}, in memory",
        model_type=config.model_type,
        layers=encoder.layers,
        heads=encoder.heads,
        width=encoder.width,
        positions=family.positions(config),
        precision=precision,
        tokenizer=tokenizer,
    )
    return _with_layout(encoder, tokenizer, reference, slots)


def _with_layout(
    encoder: Encoder,
    tokenizer: PreTrainedTokenizerBase,
    reference: EncoderReference,
    slots: int | None,
) -> TextEncoder:
    slots = slots_of(reference, slots)
    special_tokens = special_tokens_of(tokenizer)
    check_vocabulary(tokenizer, len(encoder.word_embeddings), reference.display)
    return TextEncoder(encoder, tokenizer, reference, slots, special_tokens)


def _digest(model: nn.Module) -> str:
    """SHA-256 over the names and values of a model's weights."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
