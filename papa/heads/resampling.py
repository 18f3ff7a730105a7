"""Resampled outputs: what a head output in another, drawn text of the same number of tokens (causal
scrubbing).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from safetensors.torch import save_file
from torch import Tensor

from papa.errors import DataError
from papa.heads.observers import ObservedModel
from papa.heads.outputs import ConstantOutputs
from papa.heads.substitutes import Substitute
from papa.models.layer import Heads, LayerAttention, PassTexts
from papa.text.corpus import TokenisedSplit


class Donor(NamedTuple):
    """A text whose outputs other texts take.

    Attributes:
        rank: Its random number in the draw: of each length the texts of the lowest are drawn.
        text: Its digest; None where it is not known.
        slots: The slot of each token.
        outputs: What heads output in it, call by call.
    """

    rank: bytes
    text: bytes | None
    slots: Int[Tensor, " tokens"]
    outputs: list[Float[Tensor, "heads tokens width"]]


def draw_rank(seed: int, text: bytes) -> bytes:
    """Return a random number of a text, of which the seed and the text alone decide: a draw by it
    is the same in whatever order, batches and process the texts come.
    """
    return sha256(f"{seed} ".encode() + text).digest()


def _digests(attention: LayerAttention, texts: int) -> tuple[bytes | None, ...]:
    """Return the digest of each text of a pass; None for each where they are not known."""
    return attention.texts.digests if attention.texts else (None,) * texts


@dataclass
class DrawnOutputs:
    """What heads output in two drawn texts of each length: each text has another one beside it.

    Attributes:
        seed: Of the draw.
        donors: By length, at most two, of the lowest rank, the lowest first.
        observed: How many texts were observed.
        drawn: Donors of this pass, by their row; filled layer by layer.
        calls: How often a layer calls attention in a pass.
    """

    seed: int
    donors: dict[int, list[Donor]] = field(default_factory=dict)
    observed: int = 0
    drawn: dict[int, Donor] = field(default_factory=dict)
    calls: int = 1

    def observe(self, attention: LayerAttention, layer: int) -> Tensor:
        output = attention.output(attention.all_heads)
        real = attention.slots.real
        self.calls = max(self.calls, attention.call + 1)
        if layer == 0 and attention.call == 0:
            slots = attention.slots.queries.expand(real.shape).cpu()
            real_here = real.cpu()
            self.drawn = {}
            for row, text in enumerate(_digests(attention, len(output))):
                self._draw(row, text, slots[row, real_here[row]])
        for row, donor in self.drawn.items():
            donor.outputs.append(output[row][:, attention.slots.real[row]].float().cpu())
        return output

    def _draw(self, row: int, text: bytes | None, slots: Int[Tensor, " tokens"]) -> None:
        """Keep the text if it is one of the two of least rank of its length."""
        self.observed += 1
        name = str(self.observed).encode() if text is None else text
        donor = Donor(draw_rank(self.seed, name), text, slots, [])
        donors = self.donors.setdefault(len(slots), [])
        if not len(slots) or any(other.rank == donor.rank for other in donors):
            return
        donors.append(donor)
        donors.sort(key=lambda other: other.rank)
        del donors[2:]
        if donor.rank in (other.rank for other in donors):
            self.drawn[row] = donor

    def substitute(self) -> Resampled:
        """Return the substitute; it serves texts that are longer than all donors, too."""
        donors = [donor for _, drawn in sorted(self.donors.items()) for donor in drawn]
        slots = max(int(donor.slots.max()) + 1 for donor in donors)
        outputs_by_call = zip(*(donor.outputs for donor in donors), strict=True)
        # All tokens of all donors, one after another: [calls, heads, tokens, width].
        outputs = torch.stack([torch.cat(of_donors, dim=1) for of_donors in outputs_by_call])
        lengths = torch.tensor([len(donor.slots) for donor in donors])
        starts = lengths.cumsum(0) - lengths
        # The token of each donor at each slot; at a slot that it lacks, its token before.
        tokens = torch.stack(
            [
                start - 1 + torch.searchsorted(donor.slots, torch.arange(slots), right=True)
                for donor, start in zip(donors, starts, strict=True)
            ]
        )
        # For texts of each length, 0 to ``slots``, the two donors to take: first those that are
        # long enough, the shortest first, then shorter ones, the longest first.
        longer = lengths - torch.arange(slots + 1)[:, None]
        is_too_short = longer < 0
        preference = longer.abs() + is_too_short * 2**32
        chosen_donors = preference.argsort(dim=1, stable=True).T[:2]
        choices = tuple(
            ConstantOutputs(outputs, tokens[chosen], self.calls) for chosen in chosen_donors
        )
        first_choices = chosen_donors[0].tolist()
        return Resampled(choices, tuple(donors[chosen].text for chosen in first_choices))


def drawn_outputs(model: ObservedModel) -> DrawnOutputs:
    """Return what keeps the outputs of drawn texts."""
    return DrawnOutputs(model.seed)


@dataclass(frozen=True)
class Resampled(Substitute):
    """What the head output at the same slot of another text, the donor (causal scrubbing).

    The donor is the shortest that is long enough, else the longest; at a slot that it lacks, its
    token before is taken.

    Attributes:
        choices: The outputs for texts that are not the first donor of their length; and for those
            that are, outputs of the second donor.
        texts: The digest of the first donor of each length; None where it is not known.
    """

    choices: tuple[ConstantOutputs, ...]
    texts: tuple[bytes | None, ...]

    def save(self, path: Path) -> None:
        """Write it to a file, which ``read_outputs`` reads; all texts have to be known."""
        first = self.choices[0]
        digests = [list(text) for text in self.texts if text is not None]
        tensors = {
            "outputs": first.values.contiguous(),
            "place": torch.stack([choice.index for choice in self.choices]),
            "texts": torch.tensor(digests, dtype=torch.uint8),
        }
        save_file(tensors, path)

    def output(self, attention: LayerAttention, layer: int, heads: Heads) -> Tensor:
        output = self.choices[0].output(attention, layer, heads)
        lengths = attention.slots.lengths.clamp(max=len(self.texts) - 1).tolist()
        is_donor = [
            text is not None and text == self.texts[length]
            for text, length in zip(_digests(attention, len(lengths)), lengths, strict=True)
        ]
        if not any(is_donor):
            return output
        if len(self.choices) < 2:
            raise DataError(
                "there is no other text to resample from: give more texts in data, or "
                "another substitute"
            )
        alternative = self.choices[1].output(attention, layer, heads)
        mask = torch.tensor(is_donor).to(output.device)[:, None, None, None]
        return torch.where(mask, alternative, output)


def drawn_rows(split: TokenisedSplit, seed: int) -> dict[int, list[int]]:
    """Return for each number of tokens that rows have the two rows of the least rank, the least
    first: those that ``DrawnOutputs`` keeps of all rows. Rows with the same tokens are one text.
    """
    row_by_rank: dict[int, dict[bytes, int]] = defaultdict(dict)
    # By shards, so that memory does not grow with the text.
    for index in range(len(split.shards)):
        shard = split.shard(index)
        tokens = shard.tokens()
        texts = torch.from_numpy(tokens.input_ids.astype(np.int64)).split(tokens.lengths.tolist())
        for row, text in zip(shard.rows.tolist(), texts, strict=True):
            (digest,) = PassTexts(text[None], None).digests
            least = row_by_rank[len(text)]
            least.setdefault(draw_rank(seed, digest), row)
            if len(least) > 2:
                del least[max(least)]
    return {
        length: [row for _, row in sorted(least.items())]
        for length, least in sorted(row_by_rank.items())
    }
