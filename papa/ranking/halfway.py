"""λ's training between two epochs, so that another worker can go on with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from jaxtyping import Float
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from papa.probes.joint import Moments

_FILE = "halfway.safetensors"


@dataclass
class Halfway:
    """What training has behind it: λ after every epoch, the values of every trained tensor and
    AdamW's moments of it; empty before the first epoch.
    """

    lambdas: list[Float[Tensor, "layers heads"]] = field(default_factory=list)
    values: Sequence[Tensor] = ()
    moments: Moments = ()

    def restore(self, trained: Sequence[nn.Parameter]) -> None:
        """Set what is trained to the values."""
        if not self.lambdas:
            return
        with torch.no_grad():
            for tensor, value in zip(trained, self.values, strict=True):
                if tensor.shape != value.shape:
                    raise ValueError(f"a value is {value.shape}, expected {tensor.shape}")
                tensor.copy_(value)
        self.moments = [
            (mean.to(tensor.device), square.to(tensor.device))
            for tensor, (mean, square) in zip(trained, self.moments, strict=True)
        ]

    def keep(self, trained: Sequence[nn.Parameter], moments: Moments) -> None:
        """Take in what training left."""
        self.values, self.moments = [tensor.detach() for tensor in trained], moments

    def save(self, folder: Path) -> None:
        """Write it into an artifact."""
        means, squares = zip(*self.moments, strict=True)
        named = {"value": self.values, "mean": means, "square": squares, "lambda": self.lambdas}
        save_file(
            {
                f"{name} {number}": tensor.cpu().contiguous()
                for name, tensors in named.items()
                for number, tensor in enumerate(tensors)
            },
            folder / _FILE,
        )

    @classmethod
    def load(cls, folder: Path) -> Halfway:
        """Read what ``save`` wrote."""
        found = load_file(folder / _FILE)

        def of(name: str) -> list[Tensor]:
            count = sum(key.startswith(f"{name} ") for key in found)
            return [found[f"{name} {number}"] for number in range(count)]

        return cls(of("lambda"), of("value"), list(zip(of("mean"), of("square"), strict=True)))
