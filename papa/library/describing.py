"""What an encoder's heads do, told without a task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from papa.corpora.treebank import LaidTrees, Tree, has_trees, lay_out, trees_of
from papa.descriptions.table import chosen, described
from papa.library.ablating import Heads
from papa.library.encoder import TextEncoder, check_loaded
from papa.library.inputs import LaidOut, Texts, is_tabular, laid_out, table_of
from papa.library.steps import average_of, pairs_of
from papa.progress import bar
from papa.spec.orders import Head

if TYPE_CHECKING:
    import pandas as pd


def describe(
    encoder: TextEncoder,
    texts: Texts,
    descriptions: Sequence[str] | None = None,
    *,
    heads: Heads | None = None,
    text: str = "text",
    text_pair: str | None = None,
    progress: bool = True,
) -> dict[str, pd.DataFrame]:
    """What heads do, told without a task; each of the attention as it is and made constant.

    Column ``attention`` says of which: "input-dependent" is the attention itself; "constant" its
    average over these texts, in the model as it is; "replaced" is of the model after replacement.
    Columns that end in ``_half_width`` are half the width of a measure's 95 % interval over texts.

    Examples:
        >>> import papa
        >>> encoder = papa.load_encoder("embedded/all-MiniLM-L6-v2", slots=32)
        >>> texts = ["A first text.", "Another one."]
        >>> found = papa.describe(encoder, texts, ["separators"], progress=False)
        >>> found["separators"].columns[:4].tolist()
        ['attention', 'layer', 'head', 'separator_mass']
        >>> found["separators"].attrs["texts"][0]["tokens"]
        11

    Args:
        encoder: whose heads.
        texts: as for ``average``; or a table with the columns ``tokens``, ``head`` and ``deprel``,
            sentences with gold trees as the hub's Universal Dependencies have them, which
            "syntax" and "trees" need. Sentences that do not fit are left out.
        descriptions: names from docs/how-to/describe.md, such as "similarity", "norms" or "syntax".
            None takes all that can be told of these texts.
        heads: those that are constant in the replaced model, as for ``ablated``; None takes all.
        text: as for ``average``.
        text_pair: as for ``average``.
        progress: whether to show a bar.

    Returns:
        A data frame for each description; ``attrs["texts"]`` says how many texts and tokens it is
        of, how many sentences were left out, and how many heads are constant.

    Raises:
        DataError: there is no text, what was given is something else, or a tree is none.
        SpecError: there is no such description, it needs trees, or the call stands inside
            ``replaced``.
    """
    texts = texts if hasattr(texts, "__len__") else list(texts)
    table = table_of(texts, "the table of texts") if is_tabular(texts) else None
    if table is not None and has_trees(table.rows.column_names):
        trees = trees_of(table)
        return describe_trees(encoder, trees, descriptions, heads=heads, progress=progress)
    names = chosen(descriptions, trees=False)
    check_loaded(encoder)
    encoder.check_whole()
    chosen_heads = None if heads is None else pairs_of(encoder, heads)
    inputs = laid_out(encoder, texts, text, text_pair)
    return _told(encoder, inputs, names, chosen_heads, None, progress)


def describe_trees(
    encoder: TextEncoder,
    trees: Sequence[Tree],
    descriptions: Sequence[str] | None = None,
    *,
    heads: Heads | None = None,
    progress: bool = True,
) -> dict[str, pd.DataFrame]:
    """``describe`` on sentences with gold trees."""
    names = chosen(descriptions, trees=True)
    check_loaded(encoder)
    encoder.check_whole()
    chosen_heads = None if heads is None else pairs_of(encoder, heads)
    laid = lay_out(trees, encoder.tokenizer, encoder.special_tokens, encoder.slots)
    inputs = LaidOut(laid.tokens, encoder.encoder.tokens_per_batch(None))
    return _told(encoder, inputs, names, chosen_heads, laid, progress)


def _told(
    encoder: TextEncoder,
    inputs: LaidOut,
    names: Sequence[str],
    heads: Sequence[Head] | None,
    laid: LaidTrees | None,
    progress: bool,
) -> dict[str, pd.DataFrame]:
    constants = average_of(encoder, inputs, progress)
    with bar("describing", progress) as report:
        return described(
            encoder.encoder,
            constants,
            replace(inputs, batch_tokens=1).batches(),
            encoder.special_tokens.sep,
            names,
            lambda done: report(done, len(inputs)),
            laid,
            heads,
        )
