"""Steps of the method, one call each: average, replace, features."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from papa.attention import replacement
from papa.attention.average import averaging, check_sums
from papa.attention.constants import ConstantMatrices
from papa.attention.replacement import EntryCounts
from papa.library.ablating import Heads, heads_by_layer
from papa.library.constants import Constants, constants_for
from papa.library.encoder import TextEncoder, check_loaded
from papa.library.inputs import LaidOut, Texts, laid_out
from papa.progress import bar
from papa.spec.orders import Head


def average(
    encoder: TextEncoder,
    texts: Texts,
    *,
    text: str = "text",
    text_pair: str | None = None,
    progress: bool = True,
) -> ConstantMatrices:
    """The average of the encoder's attention over unlabelled texts, head by head (paper, Section
    3.1).

    Examples:
        >>> import papa
        >>> encoder = papa.load_encoder("embedded/all-MiniLM-L6-v2", slots=32)
        >>> constants = papa.average(encoder, ["A first text.", "Another one."], progress=False)
        >>> constants.matrices.shape  # layers, heads, slots, slots
        torch.Size([6, 12, 32, 32])

    Args:
        texts: strings, pairs of strings, or a data set or data frame with a column of strings.
        text, text_pair: the columns with texts, where they are a table, and with second ones, where
            there are two per input.

    Returns:
        ``matrices``, float32 [layers, heads, slots, slots].

    Raises:
        DataError: there is no text, or what was given is something else.
    """
    check_loaded(encoder, whole=True)
    return average_of(encoder, laid_out(encoder, texts, text, text_pair), progress)


@torch.no_grad()
def average_of(encoder: TextEncoder, inputs: LaidOut, progress: bool) -> ConstantMatrices:
    """The average over texts that are laid out; see ``average``."""
    done = 0
    with (
        bar("averaging", progress) as report,
        averaging(encoder.encoder, encoder.slots) as averager,
    ):
        for batch in inputs.batches():
            encoder.encoder.observe(batch)
            done += len(batch.rows)
            report(done, len(inputs))
    check_sums(averager.sums, encoder.encoder, inputs.batches(), "the texts")
    found, digest = averager.result().average(), encoder.reference.digest
    return replace(found, encoder_digest=digest, special=inputs.special)


@contextmanager
def replaced(encoder: TextEncoder, constants: Constants, heads: Heads) -> Iterator[EntryCounts]:
    """Inside the block these heads use constant matrices; the encoder is as before after it (paper,
    Section 3.1).

    A block inside a block replaces further heads, and heads that both name for as long as it lasts.

    Examples:
        >>> import papa
        >>> encoder = papa.load_encoder("embedded/all-MiniLM-L6-v2", slots=32)
        >>> constants = papa.average(encoder, ["A first text.", "Another one."], progress=False)
        >>> with papa.replaced(encoder, constants, heads=[(0, 3), (5, 7)]) as entries:
        ...     features = papa.features(encoder, ["A third text."], progress=False)
        >>> entries.unseen_share  # of the entries read, how many the average had never seen
        0.0

    Args:
        constants: what ``average`` or ``constants`` gave for this encoder, the name of a control,
            or a tensor or array [layers, heads, slots, slots].
        heads: the constant heads, as for ``ablated``.

    Yields:
        What inputs read of the constants, and how much of it the average had never seen.

    Raises:
        ArtifactError: the matrices are those of another encoder, of another shape, or hold NaN or
            infinity.
        SpecError: there is no such head or control.
    """
    check_loaded(encoder)
    matrices = constants_for(encoder, constants)
    with replacement.replaced(encoder.encoder, matrices, pairs_of(encoder, heads)) as entries:
        yield entries


def pairs_of(encoder: TextEncoder, heads: Heads) -> list[Head]:
    """The heads as (layer, head)."""
    by_layer = heads_by_layer(heads, [encoder.heads] * encoder.layers)
    return [(layer, head) for layer, own in by_layer.items() for head in own]


@torch.no_grad()
def features(
    encoder: TextEncoder,
    texts: Texts,
    *,
    text: str = "text",
    text_pair: str | None = None,
    progress: bool = True,
) -> list[Float[Tensor, "tokens layers width"]]:
    """The frozen hidden states of each text, as probes see them (paper, Section 3.3).

    Examples:
        >>> import papa
        >>> encoder = papa.load_encoder("embedded/all-MiniLM-L6-v2", slots=32)
        >>> texts = ["A first text.", "Another, longer one."]
        >>> states = papa.features(encoder, texts, progress=False)
        >>> [tuple(one.shape) for one in states]  # tokens; embeddings and layers; width
        [(6, 7, 384), (7, 7, 384)]

    Args:
        encoder: inside ``replaced`` with constant heads.
        texts, text, text_pair: as for ``average``.

    Returns:
        A tensor for each text, in their order, on the CPU: its real tokens, the L+1 hidden states,
        width d.

    Raises:
        DataError: there is no text, or what was given is something else.
    """
    check_loaded(encoder)
    inputs, found = laid_out(encoder, texts, text, text_pair), dict[int, Tensor]()
    with bar("features", progress) as report:
        for batch in inputs.batches():
            states = torch.stack(encoder.encoder.token_states(batch), dim=1).cpu()
            lengths = batch.inputs_of_tokens.bincount(minlength=len(batch.rows)).tolist()
            for row, own in zip(batch.rows.tolist(), states.split(lengths), strict=True):
                # A clone: a text that is kept would keep the whole batch in memory.
                found[row] = own.clone()
            report(len(found), len(inputs))
    return [found[number] for number in range(len(inputs))]
