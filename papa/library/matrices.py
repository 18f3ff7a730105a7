"""Constant matrices: averages of attention, those with a name, and what they show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from papa.descriptions.patterns import head_patterns
from papa.errors import SpecError
from papa.heads import constants as matrices_of_heads
from papa.heads.average import AttentionAverager, check_sums
from papa.library.encoder import Encoder, Texts, check_loaded, lay_out_texts
from papa.library.substitutes import compute_matrices
from papa.progress import bar

if TYPE_CHECKING:
    from papa.reporting.figures import Figure


_PATTERNS = {
    "heads": ("diagonal", "special", "concentrated"),
    "weight": ("[CLS]", "[SEP]", "diagonal"),
}
"""The patterns of an average that its summary shows, by what their number is of."""


@dataclass(frozen=True, repr=False, eq=False)
class ConstantMatrices(matrices_of_heads.ConstantMatrices):
    """Constant matrices of all heads, as ``average`` and ``constants`` return them.

    Examples:
        >>> papa.constants(encoder, "zeros").matrices.shape  # layers, heads, slots, slots
        torch.Size([6, 12, 32, 32])

    Attributes:
        matrices: C, float32 [layers, heads, slots, slots], on the CPU.
        seen: Of an average, which entries it observed: bool [slots, slots].
        kind: The substitute's name.
    """

    def plot(self, layer: int | None = None, head: int | None = None) -> Figure:
        """Return the figure of a head, of a layer, or of the heads that show a pattern most
        (paper, Figure 4); ``.save("matrix.pdf")`` writes it.

        Args:
            layer: The layer, from 0; None takes the heads that show a pattern most.
            head: The head, from 0; None takes all heads of the layer.

        Raises:
            SpecError: There is no such head, or ``head`` is given without ``layer``.
        """
        from papa.reporting.heads import AttentionAverage, chosen_figure, heads_figure

        observed = self.seen if self.counts is None else self.counts
        average = AttentionAverage(
            "", "", self.matrices, observed, self.special or (0, self.slots - 1)
        )
        if layer is None and head is None:
            return chosen_figure(average)
        if layer is None:
            raise SpecError(f"head {head} is one of each layer: give layer, too")
        layers, heads = self.matrices.shape[:2]
        chosen = range(heads) if head is None else [head]
        if layer not in range(layers) or chosen[0] not in range(heads):
            last = (layers - 1, heads - 1)
            raise SpecError(f"there is no head {(layer, chosen[0])}: the last is {last}")
        return heads_figure(average, {(layer, number): self.kind for number in chosen})

    def __repr__(self) -> str:
        layers, heads = self.matrices.shape[:2]
        lines = [f"{self.kind}: {layers} layers of {heads} heads, {self.slots} slots"]
        if self.counts is not None:
            lines.append(
                f"{self.seen.double().mean():.0%} of the entries seen, in "
                f"{self.counts.max():,.0f} texts at most"
            )
            patterns = head_patterns(self.matrices, self.counts, self.special or (0, -1)).summary()
            for unit, names in _PATTERNS.items():
                shares = (f"{patterns[f'{name} {unit}']:.2f} {name}" for name in names)
                lines.append(f"{'shares' if unit == 'heads' else 'weights'}: {', '.join(shares)}")
        lines.append(f"digest {self.digest[:12]}")
        return "<" + "\n ".join(lines) + ">"


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
    matrices = compute_matrices(substitute, encoder, average, **parameters)
    return ConstantMatrices(**vars(matrices))


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
        SpecError: ``encoder`` is not from ``load_encoder``, or some of its heads are constant.
        NumbersError: The encoder computes NaN or infinity.
    """
    check_loaded(encoder, whole=True)
    running = encoder.encoder
    inputs = lay_out_texts(encoder, data, text, text_pair)
    averager = AttentionAverager(encoder.layers, encoder.heads, encoder.slots, running.device)
    with bar("averaging", progress, "text") as report:
        running.observe(averager.observe, inputs.batches(), len(inputs), report)
    check_sums(averager.sums, running, inputs.batches(), "the texts")
    averaged = averager.substitute()
    return ConstantMatrices(
        averaged.matrices,
        averaged.seen,
        "average",
        averaged.counts,
        encoder_digest=encoder.reference.digest,
        special=inputs.special,
    )
