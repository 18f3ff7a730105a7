"""What the authors' code computed with all-MiniLM-L6-v2 on CoLA at S=64 (README.md)."""

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor

from papa.heads.constants import ConstantMatrices

SLOTS = 64
FOLDER = Path(__file__).parent

# The authors' code drew the probe's first linear map, 4 MB of it, from N(0, 0.02) by torch's
# generator, seeded with 1, after this many other numbers. Here it is drawn again.
DENSE_SEED = 1
DENSE_SKIPPED = 23_588_738
DENSE_SHAPE = (384, 2688)


@dataclass(frozen=True)
class GoldenTensors:
    """Tensors by name (README.md), the order of heads, and the ten training steps."""

    tensors: dict[str, Tensor]
    order: list[tuple[int, int]]
    trained: dict[str, Tensor]

    @property
    def constants(self) -> ConstantMatrices:
        return ConstantMatrices(
            self.tensors["average_attention"], self.tensors["counts"] > 0, "average"
        )


def load_golden() -> GoldenTensors:
    """Load the stored tensors, of all slots and padded."""
    path = FOLDER / "minilm_cola_s64.safetensors"
    with safe_open(path, "pt") as file:
        order = [(layer, head) for layer, head in json.loads(file.metadata()["order"])]
    trained = load_file(FOLDER / "minilm_cola_s64_training.safetensors")
    return GoldenTensors(_expanded(load_file(path)), order, trained)


def _expanded(cut: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors of all slots from those of used slots and real tokens."""
    used_slots = cut.pop("used_slots")
    tensors = {name: cut[name] for name in cut if name.startswith(("probe.", "logits_"))}
    tensors["lambda_logits"] = cut["lambda_logits"]
    tensors["probe.dense.weight"] = dense_weight()

    average = torch.zeros(*cut["average_attention"].shape[:2], SLOTS, SLOTS)
    average[:, :, used_slots[:, None], used_slots] = cut["average_attention"]
    tensors["average_attention"] = average
    counts = torch.zeros(SLOTS, SLOTS)
    counts[used_slots[:, None], used_slots] = cut["counts"]
    tensors["counts"] = counts

    for prefix in ("", "corpus."):
        mask = _mask_of(cut[f"{prefix}lengths"].long())
        input_ids = torch.zeros(mask.shape, dtype=torch.int64)
        input_ids[mask] = cut[f"{prefix}input_ids"].long()
        tensors[f"{prefix}input_ids"] = input_ids
        tensors[f"{prefix}attention_mask"] = mask.long()
        tensors[f"{prefix}token_type_ids"] = torch.zeros_like(input_ids)
    mask = tensors["attention_mask"].bool()
    for name, packed in cut.items():
        if name.startswith("last_hidden_state"):
            states = torch.zeros(*mask.shape, packed.shape[-1])
            states[mask] = packed
            tensors[name] = states
    return tensors


def _mask_of(lengths: Tensor) -> Tensor:
    """Return which slots inputs of these lengths take: the first ones, and the last for [SEP]."""
    slots = torch.arange(SLOTS)
    return (slots < lengths[:, None] - 1) | (slots == SLOTS - 1)


def dense_weight() -> Tensor:
    """Draw the first linear map of the probe, [384, 2688], as the authors' code drew it."""
    generator = torch.Generator().manual_seed(DENSE_SEED)
    torch.rand(DENSE_SKIPPED, generator=generator)
    return torch.empty(DENSE_SHAPE).normal_(0, 0.02, generator=generator)
