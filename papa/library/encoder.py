"""A model ready for text, by its name or in memory, and texts in the slots of its layout."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias, cast

import pyarrow as pa
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from papa.errors import DataError, EncoderError, SpecError, in_one_line, joined, shown
from papa.models import encoder as encoders
from papa.models.reference import (
    DECODERS,
    EncoderReference,
    check_device,
    check_precision,
    load_tokenizer,
    resolve_encoder,
)
from papa.spec import EncoderSpec, Precision
from papa.text import tokens as tokenised
from papa.text.batches import MicroBatch, rows_of_like_length
from papa.text.layout import PackedTokens, arrange_one, arrange_pair, special_slots
from papa.text.table import SourceTable, names_of_classes
from papa.text.tokens import SpecialTokens

Table: TypeAlias = Any
Texts: TypeAlias = Iterable[str] | Iterable[tuple[str, str]] | Table
_OR_BATCHES = '; for an in-memory model also [tokenizer(texts, padding=True, return_tensors="pt")]'
"""What messages say that in-memory models take besides texts."""


@dataclass(frozen=True, repr=False)
class Encoder:
    """A frozen model ready for text, as ``load_encoder`` returns it.

    Examples:
        >>> encoder.name, encoder.layers, encoder.heads, encoder.slots
        ('embedded/all-MiniLM-L6-v2', 6, 12, 32)

    Attributes:
        reference: Its name, shape and digests.
        slots: S, the length of the layout of its inputs; of a decoder the tokens that are read of
            a text.
        encoder: The model that computes hidden states; None for a decoder.
    """

    reference: EncoderReference
    slots: int
    encoder: Any = None

    @property
    def name(self) -> str:
        """The name that it was loaded by."""
        return self.reference.name

    @property
    def path(self) -> str:
        """The folder of its files; empty for a model that was in memory."""
        return self.reference.folder

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer, of the transformers library."""
        return load_tokenizer(self.reference)

    @cached_property
    def special_tokens(self) -> SpecialTokens:
        """What the layout needs of the tokenizer."""
        return tokenised.special_tokens_of(self.tokenizer)

    @property
    def layers(self) -> int:
        """L, the number of layers."""
        return self.reference.layers

    @property
    def heads(self) -> int:
        """H, the number of heads in each layer; a decoder's count by query."""
        return self.reference.heads

    def __repr__(self) -> str:
        device = f"on {self.encoder.device}" if self.encoder else "a decoder"
        shape = f"{self.layers} layers of {self.heads} heads, width {self.reference.width}"
        return f"<{self.reference.display}: {shape}, {self.slots} slots, {device}>"


def check_loaded(encoder: object, *, accepts_decoders: bool = False, whole: bool = False) -> None:
    """Raise a SpecError unless ``encoder`` is from ``load_encoder``, is an encoder (or a decoder,
    where ``accepts_decoders``), and, if ``whole``, is outside of a block of ``replaced``.
    """
    if isinstance(encoder, str | Path):
        call = f"papa.load_encoder('{encoder}')"
        raise SpecError(f"model is the name '{encoder}': load it first, by {call}")
    if not isinstance(encoder, Encoder):
        raise SpecError(
            f"model is a {type(encoder).__name__}, expected an encoder: load it by its name, or "
            "wrap a model of transformers, papa.load_encoder(model, tokenizer)"
        )
    if encoder.encoder is None and not accepts_decoders:
        raise SpecError(
            f"{encoder.reference.display} is a decoder, which only papa.measure and "
            "papa.head_scores take: load it with transformers and use papa.ablated"
        )
    if whole and encoder.encoder and encoder.encoder.dispatch.rules:
        raise SpecError(
            "the encoder has constant heads, inside a block of papa.replaced: call this "
            "after the block"
        )


def check_measurable(model: object, **in_memory_arguments: object) -> None:
    """Raise a SpecError unless ``model`` is from ``load_encoder``, has no constant heads, and all
    arguments that only in-memory models take are None.
    """
    check_loaded(model, accepts_decoders=True, whole=True)
    given = [name for name, argument in in_memory_arguments.items() if argument is not None]
    if given:
        raise SpecError(
            f"{joined(given)}: only for an in-memory model: leave it out, or give a native head "
            "papa.Task(score=…)"
        )


def load_encoder(
    model: str | Path | PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None = None,
    *,
    slots: int | None = None,
    revision: str | None = None,
    device: str | None = None,
    precision: Precision = "float32",
) -> Encoder:
    """Load an encoder by its name, or wrap one that is in memory, which stays as it is; or load a
    decoder by its name, for ``measure`` and ``head_scores``.

    Its hidden states are not the stock model's, as ``[SEP]`` stands in the last of the slots
    (paper, App. A; docs/library.md).

    Examples:
        >>> papa.load_encoder("embedded/all-MiniLM-L6-v2", slots=64, device="cpu")
        <all-MiniLM-L6-v2: 6 layers of 12 heads, width 384, 64 slots, on cpu>

    Args:
        model: A name on the Hugging Face hub, a folder, "embedded/all-MiniLM-L6-v2", or with its
            ``tokenizer`` an encoder of transformers (of one with a task's head the base model),
            whose weights are shared, or copied to float32 from half precision.
        tokenizer: The tokenizer of a model in memory; a name has its own.
        slots: S, an even number of slots: up to S-2 tokens of a text fit. None takes 128, or as
            many as the model has positions for.
        revision: A branch, tag or commit of the hub; None takes the main branch.
        device: "cpu", "cuda" or "cuda:N"; None takes a GPU if there is one, and for a model in
            memory the model's own device. Decoders compute on the CPU.
        precision: "float32", or "bfloat16", which is faster where the device multiplies in it.

    Returns:
        The encoder.

    Raises:
        EncoderError: The model or tokenizer is missing, unsupported or unfit for the slots.
        SpecError: The device or precision is not available.
    """
    if isinstance(model, str | Path):
        if tokenizer is not None:
            raise EncoderError(f"{model} has its own tokenizer: leave out tokenizer")
        where = Path(model).expanduser()
        is_path = str(model).startswith((".", "/", "~")) or where.is_dir()
        chosen = device or ("cuda" if torch.cuda.is_available() else "cpu")
        check_device(chosen)
        check_precision(precision, chosen)
        spec = EncoderSpec(name=str(where.resolve() if is_path else model), revision=revision)
        reference = resolve_encoder(spec, precision)
        if reference.causal and device not in (None, "cpu"):
            raise SpecError(
                f"{reference.display} is a decoder, which papa.load_encoder runs on the CPU "
                "only: leave out device"
            )
        running = None if reference.causal else encoders.load_encoder(reference, chosen)
    elif not isinstance(model, PreTrainedModel):
        raise EncoderError(
            f"model is a {type(model).__name__}, expected a name or a model of transformers: "
            "give the model inside it, such as model.module, model.merge_and_unload() or "
            "model[0].auto_model"
        )
    else:
        base = cast("PreTrainedModel", model.base_model)
        running, reference = _wrapped(base, tokenizer, device, precision)
    slots = min(128, reference.positions) if slots is None else slots
    if slots not in range(4, reference.positions + 1, 2):
        most = f"{reference.positions}, as {reference.display} has positions"
        raise EncoderError(f"slots is {slots!r}, expected an even number from 4 to {most}")
    encoder = Encoder(reference, int(slots), running)
    if running:
        _ = encoder.special_tokens  # They are missed here, not in the first call.
        vocabulary = len(running.word_embeddings)
        tokenised.check_vocabulary(encoder.tokenizer, vocabulary, reference.display)
    return encoder


def _wrapped(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None,
    device: str | None,
    precision: Precision,
) -> tuple[encoders.Encoder, EncoderReference]:
    """Return an encoder that shares the weights of a model in memory, known by their digest."""
    kind = model.config.model_type
    if kind in DECODERS:
        call = "papa.measure or papa.head_scores, with tokenizer="
        raise EncoderError(f"{kind} is a decoder: give the model itself to {call}")
    name = model.name_or_path or type(model).__name__
    if tokenizer is None:
        raise EncoderError(f"the model {name} needs a tokenizer: give tokenizer=")
    device = device or str(model.device)
    check_device(device)
    check_precision(precision, torch.device(device).type)
    encoder = encoders.Encoder(model, device, precision)
    digest = hashlib.sha256()
    for key, tensor in sorted(model.state_dict().items()):
        weights = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
        digest.update(key.encode() + weights.numpy().tobytes())
    reference = EncoderReference(
        name=name,
        revision=None,
        folder="",
        digest=digest.hexdigest(),
        tokenizer_digest=f"of {name}, in memory",
        model_type=kind,
        layers=encoder.layers,
        heads=encoder.heads,
        width=encoder.width,
        positions=encoder.family.positions(model.config),
        precision=precision,
        tokenizer=tokenizer,
    )
    return encoder, reference


@dataclass(frozen=True)
class LaidOut:
    """Texts in the slots of an encoder's layout.

    Attributes:
        tokens: The tokens of all texts.
        batch_tokens: How many tokens a micro-batch may have.
        special: The slots of [CLS] and [SEP], where all texts have them there.
    """

    tokens: PackedTokens
    batch_tokens: int
    special: tuple[int, ...] | None = None

    def __len__(self) -> int:
        return len(self.tokens.lengths)

    def batches(self) -> Iterator[MicroBatch]:
        """Yield micro-batches of texts of similar length; their rows are numbers of texts."""
        tokens = self.tokens
        for rows in rows_of_like_length(tokens.first_lengths, tokens.lengths, self.batch_tokens):
            yield MicroBatch.from_tokens(rows, tokens.take(rows))


def lay_out_texts(encoder: Encoder, texts: Texts, text: str, text_pair: str | None) -> LaidOut:
    """Tokenise texts and lay them out in the encoder's slots (paper, App. A); ``text`` and
    ``text_pair`` are columns of a table. Texts that are laid out already are returned as they are.
    """
    if isinstance(texts, LaidOut):
        return texts
    table = table_of_texts(texts)
    if not is_tabular(texts):
        text = "text"
        text_pair = "text_pair" if "text_pair" in table.rows.column_names else None
    framing = encoder.special_tokens
    slots = encoder.slots

    def tokens_of(column: str) -> list[list[int]]:
        texts = table.texts(column).to_pylist()
        return tokenised.tokens_of_texts(encoder.tokenizer, framing, texts)

    first = tokens_of(text)
    if text_pair:
        tokens = arrange_pair(first, tokens_of(text_pair), framing, "follow", slots)
    else:
        tokens = arrange_one([ids[: slots - 2] for ids in first], framing, slots)
    double = framing.between == 2
    special = special_slots("pair" if text_pair else "text", slots, double_separator=double)
    return LaidOut(tokens, encoder.encoder.tokens_per_batch(None), special)


def table_of_texts(texts: Texts) -> SourceTable:
    """Return texts as a table: strings as its column ``text``, pairs as ``text`` and ``text_pair``,
    and a table as it is. Raises a DataError where they are none of these.
    """
    if texts is None or isinstance(texts, str | bytes):
        raise DataError(f"data is {shown(texts)}: give a list, such as ['a text']{_OR_BATCHES}")
    if is_tabular(texts):
        return table_of(texts, "the table of texts")
    items = [item if isinstance(item, tuple) else (item,) for item in texts]
    for index, strings in enumerate(items):
        are_strings = all(isinstance(string, str) for string in strings)
        if not are_strings or len(strings) not in (1, 2) or len(strings) != len(items[0]):
            types = joined(type(string).__name__ for string in strings)
            raise DataError(
                f"data has {types} at index {index}, expected strings or pairs of strings "
                f"throughout{_OR_BATCHES}"
            )
    names = ("text", "text_pair")
    return table_of(dict(zip(names, zip(*items, strict=True), strict=False)), "data")


def is_tabular(data: object) -> bool:
    """Return whether data have columns, as a table or a mapping has."""
    return isinstance(data, Mapping) or hasattr(data, "columns") or hasattr(data, "column_names")


def table_of(data: Table, origin: str) -> SourceTable:
    """Return data with columns as a table that messages call by its ``origin``; raise a DataError
    where it has no rows or cannot be read.
    """
    names = list(data) if isinstance(data, Mapping) else getattr(data, "column_names", [])
    if "input_ids" in names:
        raise DataError(
            f"{origin} has tokenised inputs ({', '.join(names)}): give texts{_OR_BATCHES}"
        )
    if isinstance(data, Mapping) and any(map(is_tabular, data.values())):
        raise DataError(
            f"{origin} holds several tables ({joined(map(str, names))}): give one of them"
        )
    classes: dict[str, tuple[str, ...]] = {}
    try:
        if hasattr(data, "features") and hasattr(data, "with_format"):
            classes = names_of_classes(data.features.to_dict() if data.features else {})
            rows = data.with_format("arrow")[:]
            if not isinstance(rows, pa.Table):
                raise TypeError("it is read as a stream")
        else:
            rows = pa.table(dict(data) if isinstance(data, Mapping) else data)
    except (pa.ArrowException, TypeError, ValueError, NotImplementedError) as error:
        raise DataError(
            f"{origin} cannot be read as a table ({in_one_line(error)}): give a data set, a "
            "data frame or a mapping of columns to lists"
        ) from None
    if rows.num_rows == 0:
        raise DataError(f"{origin} has no rows: give at least one")
    return SourceTable(rows, origin, classes)
