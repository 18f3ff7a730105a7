"""Constants, the heads that use them, features, and what heads do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pandas
import torch
from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from papa.descriptions.registry import chosen, described
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
from papa.library.substitutes import constants_for, named_matrices
from papa.progress import bar


@formerly(kind="substitute")
def constants(
    encoder: Encoder,
    substitute: str,
    *,
    average: ConstantMatrices | None = None,
    **parameters: int,
) -> ConstantMatrices:
    """Constant matrices [layers, heads, slots, slots] by their name: ``identity``, ``toeplitz``,
    ``zeros``, ``first``, ``previous``, ``next``, ``local`` (with ``window``) or ``fibonacci``; made
    of an average ``low_rank`` (``rank``, ``largest``) or ``relative`` (paper, Section 5.2;
    docs/method.md).

    Examples:
        >>> papa.constants(encoder, "toeplitz").matrices[0, 0, 0, :4]
        tensor([1.0000, 0.5000, 0.3333, 0.2500])
    """
    check_loaded(encoder, decoder=True)
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
    """The average of the encoder's attention over texts, head by head (paper, Section 3.1).

    Examples:
        >>> papa.average(encoder, ["A text."]).matrices.shape  # layers, heads, slots, slots
        torch.Size([6, 12, 32, 32])

    ``plot(layer=, head=)`` of what it gives draws a matrix.
    """
    check_loaded(encoder, whole=True)
    running, inputs = encoder.encoder, laid_out(encoder, data, text, text_pair)
    averager = AttentionAverager(encoder.layers, encoder.heads, encoder.slots, running.device)
    with bar("averaging", progress) as report:
        running.watch(averager.see, inputs.batches(), len(inputs), report)
    check_sums(averager.sums, running, inputs.batches(), "the texts")
    found, digest = averager.result().average(), encoder.reference.digest
    return ConstantMatrices(**{**vars(found), "encoder_digest": digest, "special": inputs.special})


@formerly(constants="substitute")
@contextmanager
def replaced(
    encoder: Encoder, heads: Heads, *, substitute: Any = "average"
) -> Iterator[EntryCounts]:
    """Inside the block these heads use constant matrices; the encoder is as before after it (paper,
    Section 3.1).

    An inner block has the last word. The block yields what inputs read of the constants, and how
    much of it the average had never seen.

    Examples:
        >>> with papa.replaced(encoder, [(0, 3), (5, 7)], substitute="toeplitz") as entries:
        ...     states = papa.features(encoder, ["A text."])
        >>> entries.unseen_share
        0.0
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
    """The frozen hidden states of each text, as probes see them (paper, Section 3.3).

    One tensor a text, on the CPU: its real tokens, the L+1 hidden states (embeddings first), width.

    Examples:
        >>> [one.shape for one in papa.features(encoder, ["A first text."])]
        [torch.Size([6, 7, 384])]
    """
    check_loaded(encoder)
    inputs, found = laid_out(encoder, data, text, text_pair), dict[int, Tensor]()
    with bar("features", progress) as report:
        for batch in inputs.batches():
            states = torch.stack(encoder.encoder.token_states(batch), dim=1).cpu()
            lengths = batch.inputs_of_tokens.bincount(minlength=len(batch.rows)).tolist()
            for row, own in zip(batch.rows.tolist(), states.split(lengths), strict=True):
                # A clone: a text that is kept would keep the whole batch in memory.
                found[row] = own.clone()
            report(len(found), len(inputs))
    return [found[number] for number in range(len(inputs))]


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
    """What heads do, told without a task; each of the attention as it is and made constant.

    Examples:
        >>> papa.describe(encoder, ["A text."], descriptions=["separators"]).columns.tolist()
        ['description', 'attention', 'layer', 'head', 'of', 'measure', 'value', 'low', 'high']

    ``descriptions`` are names from docs/how-to/describe.md; None takes all. "syntax" and "trees"
    need gold trees: a table with the columns ``tokens``, ``head`` and ``deprel``. ``heads`` are
    those of the replaced model; None takes all. A model of transformers is read as ``load_encoder``
    reads it with its ``tokenizer``.

    A row for every number, with its 95 % interval; ``of`` is another head or a relation;
    ``attention`` is "input-dependent", "constant" (its average over these texts) or "replaced" (in
    the model after replacement). ``attrs["texts"]`` counts what was read and left out.
    """
    encoder = load_encoder(model, tokenizer) if isinstance(model, PreTrainedModel) else model
    check_loaded(encoder, whole=True)
    trees, laid = None, None
    if isinstance(data, Sequence) and data and isinstance(data[0], Tree):
        trees = data
    elif is_tabular(data):
        table = table_of(data, "the table of texts")
        trees = trees_of(table) if has_trees(table.rows.column_names) else None
    names = chosen(descriptions, trees is not None)
    if trees is not None:
        laid = lay_out(trees, encoder.tokenizer, encoder.special_tokens, encoder.slots)
        data = LaidOut(laid.tokens, encoder.encoder.tokens_per_batch(None))
    inputs = laid_out(encoder, data, text, text_pair)
    constants = average(encoder, inputs, progress=progress)
    with bar("describing", progress) as report:
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
