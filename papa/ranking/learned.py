"""Training λ: how much of its input-dependent attention each head keeps (paper, Section 3.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import torch
from jaxtyping import Float
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from papa.attention.constants import ConstantMatrices
from papa.attention.mixing import mixed
from papa.corpora.corpus import TokenisedCorpus
from papa.corpora.rows import sampled_rows
from papa.encoders.encoder import Encoder
from papa.probes.evaluate import build_probe
from papa.probes.joint import JointGradients, Moments, PartGradients, train_jointly
from papa.progress import OnEpoch, Progress, ignore_epoch, ignore_progress
from papa.ranking.seeds import is_stable
from papa.spec import Order, RankingSpec, TaskSpec

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


def lambda_gradients(
    *,
    encoder: Encoder,
    constants: ConstantMatrices,
    corpus: TokenisedCorpus,
    task: TaskSpec,
    seed: int,
) -> JointGradients:
    """What finds gradients for θ (0 at the start) and the task's probe, on this encoder."""
    theta = nn.Parameter(torch.zeros(encoder.layers, encoder.heads, device=encoder.device))
    on_device = replace(constants, matrices=constants.matrices.to(encoder.device))
    return JointGradients(
        encoder,
        theta,
        build_probe(encoder, corpus, task, [seed]).to(encoder.device),
        corpus,
        dropout=task.probe.encoder_dropout,
        block=partial(mixed, encoder, on_device, theta),
    )


def train_lambda(
    encoder: Encoder,
    constants: ConstantMatrices,
    corpus: TokenisedCorpus,
    task: TaskSpec,
    ranking: RankingSpec,
    *,
    seed: int = 0,
    sets: Sequence[tuple[Order, int]] = (),
    of_parts: PartGradients | None = None,
    progress: Progress = ignore_progress,
    on_epoch: OnEpoch = ignore_epoch,
    halfway: Halfway | None = None,
    until: int | None = None,
) -> Float[Tensor, "epochs layers heads"]:
    """λ of every head after every epoch: θ (0 at the start) and a probe are trained together, the
    encoder is frozen.

    Args:
        seed: of the probe's start, the sample of rows and their order.
        sets: with ``until_stable``, the sets of constant heads that an epoch must leave as they
            were to be the last: an order by λ and how many of its first heads are constant.
        of_parts: computes the gradients of a minibatch's parts, on as many encoders as it likes,
            each with ``lambda_gradients`` of the same arguments: λ is the same to the bit.
        halfway: where an earlier call stopped; this one goes on from there and leaves it where it
            stops. λ is the same to the bit in any number of calls.
        until: the epoch after which to stop.
    """
    here = lambda_gradients(
        encoder=encoder, constants=constants, corpus=corpus, task=task, seed=seed
    )
    halfway = halfway or Halfway()
    halfway.restore(here.trained)
    theta, lambdas = here.trained[0], halfway.lambdas

    def after_epoch() -> bool:
        lambdas.append(theta.detach().sigmoid().cpu())
        return ranking.until_stable and is_stable(lambdas, sets)

    moments = train_jointly(
        encoder,
        of_parts or here.of_parts,
        here.trained,
        corpus,
        spec=task.probe,
        rows=sampled_rows(len(corpus.split("train")), ranking.rows, seed),
        epochs=until or ranking.epochs_on(task),
        rate=ranking.learning_rate or task.probe.learning_rate,
        seed=seed,
        progress=progress,
        on_epoch=on_epoch,
        stop=after_epoch,
        first=len(lambdas),
        moments=halfway.moments,
    )
    halfway.keep(here.trained, moments)
    return torch.stack(lambdas)
