"""Constants, the heads that use them, features, and what heads do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pandas
import torch
from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from papa.descriptions.registry import checked_descriptions, described
from papa.descriptions.treebank import Tree, has_trees, lay_out, trees_of
from papa.heads import replacement
from papa.heads.average import AttentionAverager, check_sums
from papa.heads.constants import EntryCounts
from papa.library.ablating import Heads, checked_heads
from papa.library.encoder import (
    Encoder,
    LaidOut,
    Texts,
    check_loaded,
    is_tabular,
    laid_out,
    load_encoder,
    table_of,
)
from papa.library.matrices import ConstantMatrices
from papa.library.renamed import formerly
from papa.library.substitutes import RequestedMatrices, constants_for, named_matrices
from papa.progress import bar


@formerly(kind="substitute")
def constants(
    encoder: Encoder, substitute: str, *, average: ConstantMatrices | None = None, **parameters: int
) -> ConstantMatrices:
    """Return constant matrices of all heads by the name of a substitute (paper, Section 5.2;
    docs/method.md).

    Examples:
        >>> papa.constants(encoder, "toeplitz").matrices[0, 0, 0, :4]
        tensor([1.0000, 0.5000, 0.3333, 0.2500])

    Args:
        encoder: The encoder that the matrices are for.
        substitute: "identity", "toeplitz", "zeros", "first", "previous", "next", "local" or
            "fibonacci"; or "low_rank" or "relative", which are computed from an average.
        average: The average that "low_rank" and "relative" are computed from.
        parameters: Keys of the substitute in a study: ``window`` of "local" (default: 2); ``rank``
            (default: 4) and ``largest`` (default: 0) of "low_rank".

    Returns:
        Matrices [layers, heads, slots, slots].

    Raises:
        SpecError: There are no such matrices, a parameter is wrong, or the average is missing.
    """
    check_loaded(encoder, accepts_decoders=True)
    matrices = named_matrices(substitute, encoder, average, **parameters)
    return ConstantMatrices(**vars(matrices))


@formerly(texts="data")
@torch.no_grad()
def average(
    encoder: Encoder,
    data: Texts,
    *,
    text: str = "text",
    text_pair: str | None = None,
    progress: bool = True,
) -> ConstantMatrices:
    """Return the average of the encoder's attention over texts, head by head (paper, Section 3.1).

    Examples:
        >>> papa.average(encoder, ["A text."]).matrices.shape  # layers, heads, slots, slots
        torch.Size([6, 12, 32, 32])

    Args:
        encoder: The encoder, outside of a block of ``replaced``.
        data: Strings, pairs of strings, or a table with a column of strings: a data set, a data
            frame, a ``pyarrow.Table``, or a mapping of columns. Texts are truncated to the slots.
        text: The column of a table that holds texts.
        text_pair: The column of a table that holds second texts; None for single texts.
        progress: Whether to show a progress bar.

    Returns:
        Matrices [layers, heads, slots, slots]: for each pair of slots the mean attention over the
        texts with tokens in both. ``plot(layer=, head=)`` draws one.

    Raises:
        DataError: The texts are missing or unreadable.
        SpecError: The encoder is none, or some of its heads are constant.
        NumbersError: The encoder computes NaN or infinity.
    """
    check_loaded(encoder, whole=True)
    running = encoder.encoder
    inputs = laid_out(encoder, data, text, text_pair)
    averager = AttentionAverager(encoder.layers, encoder.heads, encoder.slots, running.device)
    with bar("averaging", progress, "text") as report:
        running.observe(averager.observe, inputs.batches(), len(inputs), report)
    check_sums(averager.sums, running, inputs.batches(), "the texts")
    matrices = averager.result().average()
    return ConstantMatrices(
        matrices.matrices,
        matrices.seen,
        "average",
        matrices.counts,
        encoder_digest=encoder.reference.digest,
        special=inputs.special,
    )


@formerly(constants="substitute")
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
    chosen = checked_heads(heads, [encoder.heads] * encoder.layers)
    with replacement.replaced(encoder.encoder, matrices, chosen) as entries:
        yield entries


@formerly(texts="data")
@torch.no_grad()
def features(
    encoder: Encoder,
    data: Texts,
    *,
    text: str = "text",
    text_pair: str | None = None,
    progress: bool = True,
) -> list[Float[Tensor, "tokens layers width"]]:
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
    inputs = laid_out(encoder, data, text, text_pair)
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


@formerly(encoder="model", texts="data")
def describe(
    model: Encoder | PreTrainedModel,
    data: Texts | Sequence[Tree],
    *,
    descriptions: Sequence[str] | None = None,
    heads: Heads | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    text: str = "text",
    text_pair: str | None = None,
    progress: bool = True,
) -> pandas.DataFrame:
    """Describe what heads do, without a task: with their attention as it is, and made constant.

    Examples:
        >>> papa.describe(encoder, ["A text."], descriptions=["separators"]).columns.tolist()
        ['description', 'attention', 'layer', 'head', 'of', 'measure', 'value', 'low', 'high']

    Args:
        model: An ``Encoder``; or an encoder of transformers, with its ``tokenizer``.
        data: Texts, as for ``average``. The descriptions "syntax" and "trees" need gold trees: a
            table with the columns ``tokens``, ``head`` and ``deprel``.
        descriptions: Names from docs/how-to/describe.md; None or an empty list takes all that
            ``data`` allows.
        heads: The constant heads of the "replaced" rows, as for ``replaced``; None takes all.
        tokenizer: The tokenizer of a model of transformers.
        text: The column of a table that holds texts.
        text_pair: The column of a table that holds second texts; None for single texts.
        progress: Whether to show progress bars.

    Returns:
        A row for every number, with its 95 % interval (low, high). ``attention`` is
        "input-dependent", "constant" (its average over these texts) or "replaced" (in the model
        with constant heads); ``of`` is another head or a relation. ``attrs["texts"]`` counts the
        texts read and left out.

    Raises:
        SpecError: There is no such description, or the encoder is none.
        DataError: The texts or trees are missing or unreadable.
    """
    encoder = load_encoder(model, tokenizer) if isinstance(model, PreTrainedModel) else model
    check_loaded(encoder, whole=True)
    trees = None
    laid = None
    if isinstance(data, Sequence) and data and isinstance(data[0], Tree):
        trees = data
    elif is_tabular(data):
        table = table_of(data, "the table of texts")
        trees = trees_of(table) if has_trees(table.rows.column_names) else None
    names = checked_descriptions(descriptions, trees is not None)
    if trees is not None:
        laid = lay_out(trees, encoder.tokenizer, encoder.special_tokens, encoder.slots)
        data = LaidOut(laid.tokens, encoder.encoder.tokens_per_batch(None))
    inputs = laid_out(encoder, data, text, text_pair)
    constants = average(encoder, inputs, progress=progress)
    with bar("describing", progress, "text") as report:
        return described(
            encoder.encoder,
            constants,
            replace(inputs, batch_tokens=1).batches(),
            encoder.special_tokens.sep,
            names,
            lambda done: report(done, len(inputs)),
            laid,
            None if heads is None else checked_heads(heads, [encoder.heads] * encoder.layers),
        )
