"""One encoder variant in both forms, ours and transformers' own, for the laws of the method."""

import copy

import torch
from torch import Tensor

from papa.heads.average import AttentionAverager, average_of
from papa.heads.constants import ConstantMatrices
from papa.heads.sums import AttentionSums
from papa.models.encoder import Encoder
from papa.spec import Precision
from tests.make import random_model
from tests.models.inputs import SLOTS, Inputs, some_inputs
from tests.plain import plain_model, plain_pass

HALF = [(0, 0), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2), (1, 3), (2, 1)]
EVERY = [(layer, head) for layer in range(3) for head in range(4)]


class Case:
    """An encoder under test, and its weights in transformers' padded form, in float64 if it can."""

    def __init__(self, variant: str, device: str = "cpu", precision: Precision = "float32") -> None:
        model = random_model(variant)
        self.plain = plain_model(copy.deepcopy(model))
        self.encoder = Encoder(model, device, precision)
        self.pad = self.plain.config.pad_token_id
        self.segments = max(getattr(self.plain.config, "type_vocab_size", 0), 1)
        self.tolerance = 1e-5 if variant.startswith(("deberta", "modernbert")) else 1e-6
        self.shape = self.encoder.layers, self.encoder.heads

    def inputs(self, seed: int, lengths: tuple[int, ...] = (3, 9, 5, 9)) -> Inputs:
        return some_inputs(seed, lengths, pad=self.pad, segments=self.segments)

    def theta(self, value: float | None = None) -> Tensor:
        generator = torch.Generator().manual_seed(3)
        drawn = torch.randn(*self.shape, dtype=torch.float64, generator=generator)
        return (drawn if value is None else torch.full_like(drawn, value)).to(self.encoder.device)

    def padded(self, inputs: Inputs) -> list[Tensor]:
        """Hidden states of the stock model on padded inputs, those of the tokens alone."""
        outputs = self.plain_outputs(inputs)
        return [states[inputs.attention_mask] for states in outputs.hidden_states]

    def states(self, inputs: Inputs) -> list[Tensor]:
        return [states.cpu() for states in self.encoder.token_states(inputs.compact())]

    def away(self, inputs: Inputs, expected: list[Tensor]) -> float:
        return distance(self.states(inputs), expected)

    def plain_outputs(self, inputs: Inputs):
        return plain_pass(
            self.plain,
            input_ids=inputs.input_ids,
            attention_mask=inputs.attention_mask.long(),
            token_type_ids=inputs.token_type_ids,
        )

    def modules(self):
        return self.encoder.family.modules(self.plain, self.encoder.family.attention)

    def sums(self, *batches: Inputs) -> AttentionSums:
        averager = AttentionAverager(*self.shape, SLOTS, self.encoder.device)
        self.encoder.observe(averager.observe, [batch.compact() for batch in batches])
        return averager.result()

    def average(self, *batches: Inputs) -> ConstantMatrices:
        return average_of(self.sums(*batches))

    def constants(self, seed: int = 5) -> ConstantMatrices:
        generator = torch.Generator().manual_seed(seed)
        matrices = torch.rand(*self.shape, SLOTS, SLOTS, generator=generator)
        return ConstantMatrices(matrices, torch.ones(SLOTS, SLOTS, dtype=torch.bool), "average")


def distance(ours: list[Tensor], theirs: list[Tensor]) -> float:
    return max(float((a - b).abs().max()) for a, b in zip(ours, theirs, strict=True))
