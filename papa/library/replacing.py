"""A loaded encoder with constant heads, and its hidden states."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor

from papa.heads import replacement
from papa.heads.constants import EntryCounts
from papa.library.ablating import Heads, parse_heads
from papa.library.encoder import Encoder, Texts, check_loaded, lay_out_texts
from papa.library.substitutes import RequestedMatrices, constants_for
from papa.progress import bar


@contextmanager
def replaced(
    encoder: Encoder, heads: Heads, *, substitute: RequestedMatrices = "average"
) -> Iterator[EntryCounts]:
    """Make heads of an encoder constant inside the block (paper, Section 3.1); afterwards the
    encoder is as before.

    A block inside another decides over its heads.

    Examples:
        >>> with papa.replaced(encoder, [(0, 3), (5, 7)], substitute="toeplitz") as entries:
        ...     states = papa.features(encoder, ["A text."])
        >>> entries.unseen_share
        0.0

    Args:
        encoder: The encoder.
        heads: The heads to replace: (layer, head) pairs from 0, ``{layer: [heads]}``, or a mask
            [layers, heads] that is 0 where a head is replaced and 1 elsewhere.
        substitute: Matrices from ``average`` or ``constants``, floating-point matrices [layers,
            heads, slots, slots], or a name that ``constants`` takes. The default, "average", needs
            text: give ``papa.average(encoder, data)``.

    Yields:
        Counts of the matrix entries that inputs read in the block; ``unseen_share`` is the share
        that the average never observed.

    Raises:
        SpecError: There is no such head or substitute.
        ArtifactError: The matrices do not fit, or are the average of another encoder.
    """
    check_loaded(encoder)
    matrices = constants_for(encoder, substitute)
    chosen = parse_heads(heads, [encoder.heads] * encoder.layers)
    with replacement.replaced(encoder.encoder, matrices, chosen) as entries:
        yield entries


@torch.no_grad()
def features(
    encoder: Encoder,
    data: Texts,
    *,
    text: str = "text",
    text_pair: str | None = None,
    progress: bool = True,
) -> list[Float[Tensor, "tokens states width"]]:
    """Return the frozen hidden states of each text, as probes read them (paper, Section 3.3).

    Examples:
        >>> [states.shape for states in papa.features(encoder, ["A first text."])]
        [torch.Size([6, 7, 384])]

    Args:
        encoder: The encoder, also inside a block of ``replaced``.
        data: Texts, as for ``average``.
        text: The column of a table that holds texts.
        text_pair: The column of a table that holds second texts; None for single texts.
        progress: Whether to show a progress bar.

    Returns:
        A tensor for each text [tokens, layers + 1, width], on the CPU: its tokens without padding,
        and the hidden states with the embeddings first.

    Raises:
        DataError: The texts are missing or unreadable.
    """
    check_loaded(encoder)
    inputs = lay_out_texts(encoder, data, text, text_pair)
    states_by_text: dict[int, Tensor] = {}
    with bar("features", progress, "text") as report:
        for batch in inputs.batches():
            states = torch.stack(encoder.encoder.token_states(batch), dim=1).cpu()
            lengths = batch.inputs_of_tokens.bincount(minlength=len(batch.rows)).tolist()
            for row, text_states in zip(batch.rows.tolist(), states.split(lengths), strict=True):
                # A clone: a text that is kept would keep the whole batch in memory.
                states_by_text[row] = text_states.clone()
            report(len(states_by_text), len(inputs))
    return [states_by_text[number] for number in range(len(inputs))]
