"""Constant matrices as the library returns them: with a figure, and a summary in a few lines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from papa.descriptions.patterns import head_patterns
from papa.errors import SpecError
from papa.heads import constants

if TYPE_CHECKING:
    from papa.reporting.figures import Figure


_PATTERNS = {
    "heads": ("diagonal", "special", "concentrated"),
    "weight": ("[CLS]", "[SEP]", "diagonal"),
}
"""The patterns of an average that its summary shows, by what their number is of."""


@dataclass(frozen=True, repr=False, eq=False)
class ConstantMatrices(constants.ConstantMatrices):
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
            SpecError: There is no such head.
        """
        from papa.reporting.heads import AttentionAverage, chosen_figure, heads_figure

        layers, heads = self.matrices.shape[:2]
        observed = self.seen if self.counts is None else self.counts
        average = AttentionAverage(
            "", "", self.matrices, observed, self.special or (0, self.slots - 1)
        )
        if layer is None and head is None:
            return chosen_figure(average)
        chosen = range(heads) if head is None else [head]
        if layer is None or layer not in range(layers) or not {*chosen} <= {*range(heads)}:
            last = layers - 1, heads - 1
            raise SpecError(
                f"there is no head {(layer, head)}: give layer and head from 0, up to {last}"
            )
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
