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

if TYPE_CHECKING:
    import pandas as pd


def describe(
    encoder: TextEncoder,
    texts: Texts | Sequence[Tree],
    descriptions: Sequence[str] | None = None,
    *,
    heads: Heads | None = None,
    text: str = "text",
    text_pair: str | None = None,
    progress: bool = True,
) -> pd.DataFrame:
    """What heads do, told without a task; each of the attention as it is and made constant.

    Examples:
        >>> import papa
        >>> encoder = papa.load_encoder("embedded/all-MiniLM-L6-v2", slots=32)
        >>> texts = ["A first text.", "Another one."]
        >>> found = papa.describe(encoder, texts, ["separators"], progress=False)
        >>> found.columns.tolist()
        ['description', 'attention', 'layer', 'head', 'of', 'measure', 'value', 'low', 'high']
        >>> found.attrs["texts"][0]["tokens"]
        11

    Args:
        texts: as for ``average``; or a table with the columns ``tokens``, ``head`` and ``deprel``,
            sentences with gold trees as the hub's Universal Dependencies have them, which
            "syntax" and "trees" need. Sentences that do not fit are left out.
        descriptions: names from docs/how-to/describe.md, such as "similarity", "norms" or "syntax".
            None takes all that can be told of these texts.
        heads: those that are constant in the replaced model, as for ``ablated``; None takes all.
        text, text_pair: as for ``average``.

    Returns:
        A row for every number: its description and measure, the layer and head that it is of,
        ``of`` what else (another head, a relation), value and 95 % interval. ``attention`` is
        "input-dependent", the attention itself; "constant", its average over these texts in the
        model as it is; or "replaced", the model after replacement. ``attrs["texts"]`` says how many
        texts and tokens it is of, how many sentences were left out, and how many heads are
        constant.

    Raises:
        DataError: there is no text, what was given is something else, or a tree is none.
        SpecError: there is no such description, it needs trees, or the call stands inside
            ``replaced``.
    """
    check_loaded(encoder, whole=True)
    trees = _trees(texts)
    names = chosen(descriptions, trees is not None)
    chosen_heads = None if heads is None else pairs_of(encoder, heads)
    laid: LaidTrees | None = None
    if trees is None:
        inputs = laid_out(encoder, texts, text, text_pair)
    else:
        laid = lay_out(trees, encoder.tokenizer, encoder.special_tokens, encoder.slots)
        inputs = LaidOut(laid.tokens, encoder.encoder.tokens_per_batch(None))
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
            chosen_heads,
        )


def _trees(texts: Texts | Sequence[Tree]) -> Sequence[Tree] | None:
    """The gold trees of sentences; None of other texts."""
    if isinstance(texts, Sequence) and texts and isinstance(texts[0], Tree):
        return texts
    table = table_of(texts, "the table of texts") if is_tabular(texts) else None
    return trees_of(table) if table and has_trees(table.rows.column_names) else None
