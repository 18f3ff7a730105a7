"""What an encoder's heads do, told without a task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from papa.descriptions.table import chosen, described
from papa.library.bars import bar
from papa.library.encoder import TextEncoder
from papa.library.inputs import Texts, laid_out
from papa.library.steps import average

if TYPE_CHECKING:
    import pandas as pd


def describe(
    encoder: TextEncoder,
    texts: Texts,
    descriptions: Sequence[str] | None = None,
    *,
    text: str = "text",
    text_pair: str | None = None,
    progress: bool = True,
) -> dict[str, pd.DataFrame]:
    """What heads do, told without a task; each of the attention as it is and made constant.

    Column ``attention`` says of which: "input-dependent" is the attention itself; "constant" its
    average over these texts, in the model as it is; "replaced" that average in the model whose
    heads are all constant.

    Examples:
        >>> import papa
        >>> encoder = papa.load_encoder("embedded/all-MiniLM-L6-v2", slots=32)
        >>> texts = ["A first text.", "Another one."]
        >>> found = papa.describe(encoder, texts, ["separators"], progress=False)
        >>> list(found["separators"])
        ['attention', 'layer', 'head', 'separator_mass', 'update']

    Args:
        encoder: whose heads.
        texts: as for ``average``.
        descriptions: "similarity", pairs of heads: Jensen-Shannon divergence of their rows in nats,
            cosine of their outputs, clusters (Clark et al., 2019); "separators", heads: attention
            on separators and the norm of their output; "outliers", layers: kurtosis and largest
            number of hidden states (Bondarenko et al., 2023). None takes all.
        text: as for ``average``.
        text_pair: as for ``average``.
        progress: whether to show a bar.

    Returns:
        A data frame for each description.

    Raises:
        DataError: there is no text, or what was given is something else.
        SpecError: there is no such description, or the call stands inside ``replaced``.
    """
    names = chosen(descriptions)
    encoder.check_whole()
    texts = texts if hasattr(texts, "__len__") else list(texts)
    constants = average(encoder, texts, text=text, text_pair=text_pair, progress=progress)
    inputs, separator = laid_out(encoder, texts, text, text_pair), encoder.special_tokens.sep
    with bar("describing", progress) as report:
        return described(
            encoder.encoder,
            constants,
            inputs.batches(),
            separator,
            names,
            lambda done: report(done, len(inputs)),
        )
