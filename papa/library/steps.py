"""One call each: average, replace, features, and what heads do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pandas
import torch
from jaxtyping import Float
from torch import Tensor

from papa.attention import replacement
from papa.attention.average import averaging, check_sums
from papa.attention.constants import ConstantMatrices
from papa.attention.replacement import EntryCounts
from papa.corpora.treebank import Tree, has_trees, lay_out, trees_of
from papa.descriptions.table import chosen, described
from papa.library.ablating import Heads, heads_by_layer
from papa.library.constants import Constants, constants_for
from papa.library.encoder import TextEncoder, check_loaded
from papa.library.inputs import LaidOut, Texts, is_tabular, laid_out, table_of
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
    """The average of the encoder's attention over texts, head by head (paper, Section 3.1).

    Examples:
        >>> import papa
        >>> encoder = papa.load_encoder("embedded/all-MiniLM-L6-v2", slots=32)
        >>> constants = papa.average(encoder, ["A first text.", "Another one."], progress=False)
        >>> constants.matrices.shape  # layers, heads, slots, slots
        torch.Size([6, 12, 32, 32])

    Args:
        texts: strings, pairs of strings, or a data set or data frame with a column of strings.
        text, text_pair: of a table, the columns with texts, and with second ones.

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

    A block inside a block replaces further heads, and those that both name.

    Examples:
        >>> import papa
        >>> encoder = papa.load_encoder("embedded/all-MiniLM-L6-v2", slots=32)
        >>> constants = papa.average(encoder, ["A first text.", "Another one."], progress=False)
        >>> with papa.replaced(encoder, constants, heads=[(0, 3), (5, 7)]) as entries:
        ...     features = papa.features(encoder, ["A third text."], progress=False)
        >>> entries.unseen_share  # of the entries read, how many the average had never seen
        0.0

    Args:
        constants: of ``average`` or ``constants``, a control's name, or a tensor or array [layers,
            heads, slots, slots].
        heads: the constant heads, as for ``ablated``.

    Yields:
        What inputs read of the constants, and how much of it the average had never seen.

    Raises:
        ArtifactError: the matrices do not fit the encoder, or hold NaN or infinity.
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


def describe(
    encoder: TextEncoder,
    texts: Texts | Sequence[Tree],
    descriptions: Sequence[str] | None = None,
    *,
    heads: Heads | None = None,
    text: str = "text",
    text_pair: str | None = None,
    progress: bool = True,
) -> pandas.DataFrame:
    """What heads do, told without a task; each of the attention as it is and made constant.

    Examples:
        >>> import papa
        >>> encoder = papa.load_encoder("embedded/all-MiniLM-L6-v2", slots=32)
        >>> texts = ["A first text.", "Another one."]
        >>> found = papa.describe(encoder, texts, ["separators"], progress=False)
        >>> found.columns.tolist()
        ['description', 'attention', 'layer', 'head', 'of', 'measure', 'value', 'low', 'high']

    Args:
        texts, text, text_pair: as for ``average``; or a table with the columns ``tokens``, ``head``
            and ``deprel``, sentences with gold trees, which "syntax" and "trees" need. Sentences
            that do not fit are left out.
        descriptions: names from docs/how-to/describe.md, such as "similarity"; None takes all.
        heads: those that are constant in the replaced model, as for ``ablated``; None takes all.

    Returns:
        A row for every number, with its 95 % interval; ``of`` is another head or a relation.
        ``attention`` is "input-dependent", "constant" (its average over these texts) or "replaced"
        (that of the model after replacement). ``attrs["texts"]`` counts texts, tokens, sentences
        left out and constant heads.

    Raises:
        DataError: there is no text, what was given is something else, or a tree is none.
        SpecError: there is no such description, or it needs trees.
    """
    check_loaded(encoder, whole=True)
    trees = _trees(texts)
    names, laid = chosen(descriptions, trees is not None), None
    chosen_heads = None if heads is None else pairs_of(encoder, heads)
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
    table = table_of(texts, "the table of texts", {}) if is_tabular(texts) else None
    return trees_of(table) if table and has_trees(table.rows.column_names) else None
