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
from papa.encoders.files import TOKENIZER_FILES
from papa.encoders.precision import check_device, check_precision
from papa.encoders.reference import EncoderReference, load_tokenizer, resolve_encoder
from papa.errors import EncoderError, SpecError
from papa.spec import EncoderSpec, Precision

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

DEFAULT_SLOTS = 128


@dataclass(frozen=True, repr=False)
class TextEncoder:
    """What ``load_encoder`` gives.

    Attributes:
        reference: its name, shape and digests.
        slots: S, the length of the layout of its inputs; a decoder reads so many tokens of a text.
        running: what computes; None of a decoder, which is opened by its files.
    """

    reference: EncoderReference
    slots: int
    running: Encoder | None = None

    @property
    def encoder(self) -> Encoder:
        """What computes, of an encoder."""
        assert self.running is not None, "calls that take no decoder refuse it"
        return self.running

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

    @property
    def width(self) -> int:
        """d, the width of the hidden states."""
        return self.reference.width

    def __repr__(self) -> str:
        what = f"on {self.running.device}" if self.running else "a decoder"
        shape = f"{self.layers} layers of {self.heads} heads, width {self.width}"
        return f"<{self.reference.display}: {shape}, {self.slots} slots, {what}>"


def check_loaded(encoder: object, *, decoder: bool = False, whole: bool = False) -> None:
    """Refuse what ``load_encoder`` did not give, a ``decoder`` unless it may be one, and one inside
    ``replaced`` where it must be ``whole``.
    """
    if not isinstance(encoder, TextEncoder):
        raise SpecError(
            f"encoder is a {type(encoder).__name__}, expected what papa.load_encoder gives"
        )
    if encoder.running is None and not decoder:
        raise SpecError(
            f"{encoder.reference.display} is a decoder, which papa.measure, papa.head_scores and "
            "papa.constants take alone: give papa.ablated what transformers loads"
        )
    if whole and encoder.running and encoder.running.dispatch.rules:
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
        >>> import papa
        >>> papa.load_encoder("embedded/all-MiniLM-L6-v2", slots=64, device="cpu")
        <all-MiniLM-L6-v2: 6 layers of 12 heads, width 384, 64 slots, on cpu>

    Args:
        model: a name on the Hugging Face hub, a folder, or an encoder of transformers, whose
            weights are shared (copied to float32 from half precision); of a model with a task's
            head, its base model is taken.
        tokenizer: for a model that is loaded already: its fast tokenizer.
        slots: S, an even number: up to S-2 tokens of a text fit. None takes 128, or as many as the
            model has positions for.
        revision: a branch, tag or commit on the hub.
        device: None takes a GPU where there is one; a loaded model's own device. Decoders compute
            on the CPU.
        precision: "bfloat16" is faster where the device multiplies in it.

    Raises:
        EncoderError: there is no such encoder, it is not supported, or the tokenizer does not fit.
        SpecError: there is no such device, or it does not compute in this precision.
    """
    if isinstance(model, str | Path):
        if tokenizer is not None:
            raise EncoderError(f"{model} comes with its own tokenizer: leave the tokenizer out")
        reference, running = _by_name(str(model), revision, device, precision)
    else:
        reference, running = _held(model, tokenizer, device, precision)
    slots = min(DEFAULT_SLOTS, reference.positions) if slots is None else slots
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


def _by_name(
    name: str, revision: str | None, device: str | None, precision: Precision
) -> tuple[EncoderReference, Encoder | None]:
    folder = Path(name).expanduser()
    if name.startswith((".", "/", "~")) or folder.is_dir():
        name = str(folder.resolve())
    chosen = device or ("cuda" if torch.cuda.is_available() else "cpu")
    check_device(chosen)
    check_precision(precision, chosen)
    reference = resolve_encoder(EncoderSpec(name=name, revision=revision), precision)
    if reference.causal and device not in (None, "cpu"):
        raise SpecError(f"{reference.display} is a decoder, which computes on the CPU here")
    return reference, None if reference.causal else encoders.load_encoder(reference, chosen)


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
        tokenizer=tokenizer or _tokenizer_of(whole, name),
    )
    return reference, encoder


def _tokenizer_of(model: Any, name: str) -> Any:
    """That which lies beside the model's files."""
    from transformers import AutoTokenizer
    from transformers.utils import cached_file

    silent = ("missing_entries", "gated_repo", "connection_errors")
    quietly: Any = {f"_raise_exceptions_for_{what}": False for what in silent}
    if not model.name_or_path or not any(
        cached_file(name, one, **quietly) for one in TOKENIZER_FILES
    ):
        raise EncoderError(
            f"no tokenizer is found with the model {name}: give its own as the second argument"
        )
    return AutoTokenizer.from_pretrained(name)


def _digest(model: nn.Module) -> str:
    """SHA-256 over the names and values of a model's weights."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
