"""What heads do, described without a task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pandas
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from papa.descriptions.registry import checked_descriptions, describe_texts
from papa.descriptions.treebank import LaidTrees, Tree, has_trees, lay_out, trees_of
from papa.library.ablating import Heads, parse_heads
from papa.library.encoder import (
    Encoder,
    LaidOut,
    Texts,
    check_loaded,
    is_tabular,
    lay_out_texts,
    load_encoder,
    table_of,
)
from papa.library.matrices import average
from papa.progress import bar


def describe(
    model: Encoder | PreTrainedModel,
    data: Texts,
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
        SpecError: There is no such description, or ``model`` is no encoder.
        DataError: The texts or trees are missing or unreadable.
    """
    encoder = load_encoder(model, tokenizer) if isinstance(model, PreTrainedModel) else model
    check_loaded(encoder, whole=True)
    trees: Sequence[Tree] | None = None
    if is_tabular(data):
        table = table_of(data, "the table of texts")
        trees = trees_of(table) if has_trees(table.rows.column_names) else None
    names = checked_descriptions(descriptions, trees is not None)
    laid_trees: LaidTrees | None = None
    if trees is not None:
        laid_trees = lay_out(trees, encoder.tokenizer, encoder.special_tokens, encoder.slots)
        data = LaidOut(laid_trees.tokens, encoder.encoder.tokens_per_batch(None))
    inputs = lay_out_texts(encoder, data, text, text_pair)
    constants = average(encoder, inputs, progress=progress)
    with bar("describing", progress, "text") as report:
        return describe_texts(
            encoder.encoder,
            constants,
            replace(inputs, batch_tokens=1).batches(),
            encoder.special_tokens.sep,
            names,
            lambda done: report(done, len(inputs)),
            laid_trees,
            None if heads is None else parse_heads(heads, [encoder.heads] * encoder.layers),
        )
