"""What the authors' code computed with all-MiniLM-L6-v2 on CoLA at S=64 (README.md)."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor

SLOTS = 64
COMPUTED = "minilm_cola_s64.safetensors"
TRAINED = "minilm_cola_s64_training.safetensors"
CUT_FOLDER = Path(__file__).parent
CONSTANT_HEADS = ("0", "36", "63", "72", "mix")
"""Names of the stored hidden states and logits: how many heads are constant, or the mix by λ."""

# The authors' code drew the probe's first linear map, 4 MB of it, from N(0, 0.02) by torch's
# generator, seeded with 1, after this many other numbers. The cut draws it again.
DENSE_SEED = 1
DENSE_SKIPPED = 23_588_738
DENSE_SHAPE = (384, 2688)


@dataclass(frozen=True)
class GoldenTensors:
    """Tensors by name (README.md), the order of heads, and the ten training steps."""

    tensors: dict[str, Tensor]
    order: list[tuple[int, int]]
    trained: dict[str, Tensor]


def full_folder() -> Path:
    """Return where the full tensors lie: `golden` in $PAPA_SHARED, else beside the checkout."""
    beside_checkout = Path(__file__).resolve().parents[3] / "shared"
    return Path(os.environ.get("PAPA_SHARED") or beside_checkout) / "golden"


def load_golden(folder: Path | None = None) -> GoldenTensors:
    """Load the full tensors where they are, else the cut of this folder, in the same form.

    Args:
        folder: read this folder instead.
    """
    if folder is None:
        folder = full_folder() if (full_folder() / COMPUTED).is_file() else CUT_FOLDER
    with safe_open(folder / COMPUTED, "pt") as file:
        order = [(layer, head) for layer, head in json.loads(file.metadata()["order"])]
    tensors = load_file(folder / COMPUTED)
    if "used_slots" in tensors:
        tensors = _expanded(tensors)
    return GoldenTensors(tensors, order, load_file(folder / TRAINED))


def _expanded(cut: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors of all slots from those of used slots and real tokens."""
    used_slots = cut.pop("used_slots")
    tensors = {name: cut[name] for name in cut if name.startswith(("logits_", "probe."))}
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
    for name in CONSTANT_HEADS:
        packed = cut[f"last_hidden_state_{name}"]
        states = torch.zeros(*mask.shape, packed.shape[-1])
        states[mask] = packed
        tensors[f"last_hidden_state_{name}"] = states
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
